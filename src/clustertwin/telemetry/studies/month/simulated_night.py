"""The night after a simulated day: a strategy, the day's traces and the verdicts so far -> a new champion, or not.

It uses the sampling, the golden set, the duel and the training of the real nightly cycle. The halt rule, the rehearsal
memory and the shadow are repeated here in memory, because the study has no home directory.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from clustertwin.core.traces import Trace
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
from clustertwin.telemetry.learning.champions.shadow import ShadowRule, reason_to_end
from clustertwin.telemetry.learning.duel.contestant_evaluation import NormalMoments, evaluate_contestant
from clustertwin.telemetry.learning.duel.duel_decision import Contestant, decide
from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
from clustertwin.telemetry.learning.duel.golden_set import GoldenSet, standard_golden_set
from clustertwin.telemetry.learning.duel.site_golden_set import SiteGoldenSet, site_golden_set
from clustertwin.telemetry.learning.night.challengers import ChallengerTraining, Start, training_settings
from clustertwin.telemetry.learning.night.day_census import DayCensus
from clustertwin.telemetry.learning.night.day_sampling import DaySplit, SamplingSettings, sample_day
from clustertwin.telemetry.learning.night.rehearsal_memory import evenly_spaced
from clustertwin.telemetry.learning.night.training_windows import training_windows
from clustertwin.telemetry.learning.night.verdicts import VettedSpan, called_normal
from clustertwin.telemetry.models import DEFAULT
from clustertwin.telemetry.models.model_store import StoredModel, read, save
from clustertwin.telemetry.models.training import fit
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.recording.trace_archive import MemoryArchive
from clustertwin.telemetry.studies.month.month_report import DayResult
from clustertwin.telemetry.studies.month.month_settings import MonthSettings, Strategy
from clustertwin.telemetry.studies.month.simulated_month import MonthScenario
from clustertwin.telemetry.studies.month.simulated_vetting import DelayedVerdict

_BASELINES = 2  # earlier champions that are measured again


@dataclass(slots=True)
class StrategyState:
    """What a strategy carries from day to day."""

    champion: Detector
    memory: dict[int, DaySplit]  # the rehearsal memory, by day
    earlier: list[Detector] = field(default_factory=list)  # the champions that were learned before this one
    learned: bool = True  # was the champion learned at this site?
    questions: QuestionMemory = field(default_factory=QuestionMemory)  # what is usual for each program
    shadow: bool = False  # nobody is notified: the site is not known yet
    hours: list[float] = field(default_factory=list)  # thread-hours of each day
    verdicts: list[DelayedVerdict] = field(default_factory=list)
    halted_until: int = -1
    repaired: int = 10_000  # the day on which the failing disk is replaced
    days: list[DayResult] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SimulatedNight:
    outcome: str
    informedness: float  # of the champion of the day before, on the golden set
    training_s: float = 0.0  # CPU time
    because: str = ""


def run_simulated_night(
    strategy: Strategy, settings: MonthSettings, state: StrategyState, day: int, traces: list[Trace]
) -> SimulatedNight:
    """The night after `day`. It changes the state."""
    today = settings.world.day(day)
    known = [verdict for verdict in state.verdicts if verdict.known <= day]
    verdicts = [verdict.span for verdict in known if verdict.span.end_s > today.start_s]
    split, census = sample_split(settings, day, traces, verdicts)
    golden = _golden_set(split, state)
    normal = NormalMoments(split.held_out, tuple(called_normal(moment, verdicts) for moment in split.held_out))
    champion = evaluate_contestant("champion", state.champion, normal, golden)
    informedness = champion.detection.informedness
    if strategy.start is None:
        return SimulatedNight("never", informedness)
    if strategy.halt and is_halt_cause(settings.world, state, day):
        state.halted_until = day + settings.people.resume_days
        return SimulatedNight("halted", informedness)
    if strategy.halt and day < state.halted_until:
        return SimulatedNight("halted", informedness)
    _forget_confirmed_days(settings.world, state, day)
    memory = list(state.memory.values()) if strategy.replay else []
    challengers: dict[str, tuple[Contestant, Detector]] = {}
    cpu_s = 0.0
    for start in dict.fromkeys((strategy.start, "recalibrated")):
        detector, training_s = train_detector(settings, start, split, memory, state.champion.stored)
        cpu_s += training_s
        challengers[start] = evaluate_contestant(start, detector, normal, golden), detector
    rule = settings.rule if strategy.gate else DuelRule(gate=False)
    baselines = [evaluate_contestant("earlier", each, normal, golden) for each in state.earlier[-_BASELINES:]]
    decision = decide(champion, [contestant for contestant, _ in challengers.values()], rule, baselines)
    winner, outcome = champion, "kept"
    if decision.winner != "champion":
        if state.learned:
            state.earlier.append(state.champion)
        winner, state.champion = challengers[decision.winner]
        outcome, state.learned = "promoted", True
    if not decision.refused:
        _remember(settings, state, day, split)
    state.hours.append(census.thread_hours)
    state.shadow = state.shadow and not reason_to_end(ShadowRule(), state.hours, winner.strange, state.learned)
    return SimulatedNight(outcome, informedness, cpu_s, decision.because)


def is_halt_cause(scenario: MonthScenario, state: StrategyState, today: int) -> bool:
    """As in `halt_rules`: was an anomaly confirmed today, on today or on a day whose night promoted a challenger?"""
    learned = {result.day for result in state.days if result.outcome == "promoted"}
    confirmed = {scenario.day_number(span.start_s) for span in _confirmed_today(state, today)}
    return bool(confirmed & (learned | {today}))


def sample_split(
    settings: MonthSettings, day: int, traces: list[Trace], verdicts: Sequence[VettedSpan] = ()
) -> tuple[DaySplit, DayCensus]:
    sampling = SamplingSettings(moments=settings.moments)
    return sample_day(settings.world.day(day), MemoryArchive(traces), verdicts, sampling)


def train_detector(
    settings: MonthSettings,
    start: Start,
    split: DaySplit,
    memory: Sequence[DaySplit],
    champion: StoredModel | None,
    replay_moments: int = 0,
) -> tuple[Detector, float]:
    """A calibrated detector and the CPU seconds it took. `replay_moments` overrides the settings."""
    started_s = time.process_time()
    count = replay_moments or settings.replay_moments
    train = [*split.train, *(m for day in memory for m in evenly_spaced(day.train, count))]
    validation = [*split.validation, *(m for day in memory for m in evenly_spaced(day.validation, count))]
    if champion is None or start != "recalibrated":
        champion = _train_model(settings.training, train, validation, champion if start == "warm" else None)
    return calibrate(champion, validation, learn=train), time.process_time() - started_s


def _golden_set(split: DaySplit, state: StrategyState) -> SiteGoldenSet | GoldenSet:
    remembered = [moment for day in state.memory.values() for moment in evenly_spaced(day.held_out, 4)]
    site = site_golden_set([*remembered, *split.held_out])
    return site if site.enough else standard_golden_set()


def _train_model(
    training: ChallengerTraining, train: list[Moment], validation: list[Moment], start: StoredModel | None
) -> StoredModel:
    name = start.name if start else DEFAULT
    epochs = training.warm_epochs if start else training.epochs
    model = fit(
        training_windows(train),
        training_windows(validation),
        training_settings(name, epochs, training, start),
        start=start.model if start else None,
    ).model
    with tempfile.TemporaryDirectory() as scratch:
        save(Path(scratch), name, model)  # storing it computes its hash
        return read(Path(scratch))


def _confirmed_today(state: StrategyState, today: int) -> list[VettedSpan]:
    return [v.span for v in state.verdicts if v.known == today and v.span.verdict == "confirmed"]


def _forget_confirmed_days(scenario: MonthScenario, state: StrategyState, today: int) -> None:
    """Remove earlier days from the memory on which an anomaly was confirmed today."""
    confirmed = _confirmed_today(state, today)
    for number in [number for number in state.memory if number < today]:
        day = scenario.day(number)
        if any(span.start_s < day.end_s and span.end_s > day.start_s for span in confirmed):
            del state.memory[number]


def _remember(settings: MonthSettings, state: StrategyState, day: int, split: DaySplit) -> None:
    """As in `rehearsal_memory`: a full memory loses one random day."""
    state.memory[day] = split
    if len(state.memory) > settings.replay_days:
        rng = np.random.default_rng((settings.seed, 8, day))
        del state.memory[sorted(state.memory)[int(rng.integers(len(state.memory)))]]
