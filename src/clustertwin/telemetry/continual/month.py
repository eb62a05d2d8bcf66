"""A simulated month under each strategy of learning -> errors, false events, detection, forgetting, training time.

Every strategy lives through the same days, and its first champion learned from the same days before them. Each day is
scored by the champion of the night before; then people vet what alarmed, late and sometimes wrongly, and the night
learns from what they have said by then.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.campaign.simulation.signature import Signatures, read_signatures
from clustertwin.telemetry.continual import golden
from clustertwin.telemetry.continual.challengers import Start, Training, settings_of
from clustertwin.telemetry.continual.duel import Contestant, Rule, choose
from clustertwin.telemetry.continual.judging import judge, on_normal
from clustertwin.telemetry.continual.material import Material, gather, windows_of
from clustertwin.telemetry.continual.month_report import Lived, Row, draw, mean, read_days, summarise, write_days
from clustertwin.telemetry.continual.past import Remembered
from clustertwin.telemetry.continual.people import People, Said, truly, vet
from clustertwin.telemetry.continual.replay import spread
from clustertwin.telemetry.continual.verdicts import Vetted
from clustertwin.telemetry.continual.world import World, live
from clustertwin.telemetry.detection.detector import Detector, calibrate
from clustertwin.telemetry.detection.events import Event, EventSettings, Tracker
from clustertwin.telemetry.detection.moment import Moment, moments
from clustertwin.telemetry.models import DEFAULT
from clustertwin.telemetry.models.store import Stored, read, save
from clustertwin.telemetry.training import fit

_EVERY_S = 150
_BEFORE = 4  # days that the first champion has seen, besides the first
#: As the service has them, at the stride of a simulated day: what alarms twice in a row is an event.
_EVENTS = EventSettings(needed_s=300, of_s=450, calm_s=300, same_cause_s=300, longest_step_s=_EVERY_S)


@dataclass(frozen=True, slots=True)
class Strategy:
    name: str
    start: Start | None = None  # None: never learn
    replay: bool = False
    gate: bool = False
    halt: bool = False


#: Beside each other in the table.
STRATEGIES: tuple[Strategy, ...] = (
    Strategy("never"),
    Strategy("recalibrated", "recalibrated"),
    Strategy("scratch", "scratch"),
    Strategy("warm", "warm"),
    Strategy("warm+replay", "warm", replay=True),
    Strategy("warm+replay+gate", "warm", replay=True, gate=True),
    Strategy("warm+replay+halt", "warm", replay=True, halt=True),
    Strategy("warm+replay+gate+halt", "warm", replay=True, gate=True, halt=True),
)


@dataclass(frozen=True, slots=True)
class MonthSettings:
    days: int = 30
    world: World = World()
    people: People = People()
    training: Training = Training(epochs=4, warm_epochs=2)
    moments: int = 60
    replay_moments: int = 4
    replay_days: int = 8
    rule: Rule = Rule()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Beginning:
    """What every strategy begins with."""

    standard: golden.Golden
    days: tuple[Material, ...]  # what the first champion learned from
    champion: Detector
    seen: golden.Detection  # what it sees of the golden set


@dataclass(slots=True)
class _Life:
    """What a strategy carries from day to day."""

    champion: Detector
    seen: list[golden.Detection]  # what each champion saw of the golden set, this one last
    memory: dict[int, Material]  # by day
    said: list[Said] = field(default_factory=list)
    halted_until: int = -1
    repaired: int = 10_000  # from this day on the disk is a good one
    days: list[Lived] = field(default_factory=list)


def _silent(strategy: str, day: int, of: int) -> None:
    """Progress that nobody watches."""


def begin(settings: MonthSettings, signatures: Signatures, standard: golden.Golden) -> Beginning:
    """The first champion, of the days before the first."""
    world, seed = settings.world, settings.seed
    days = [_gathered(settings, day, live(world, day, signatures, seed), []) for day in range(-_BEFORE, 1)]
    champion, _ = _trained(settings, "scratch", days[-1], days[:-1], None, keep=settings.moments)
    return Beginning(standard, tuple(days), champion, golden.detect(champion, standard))


def live_month(
    strategy: Strategy,
    settings: MonthSettings,
    signatures: Signatures,
    beginning: Beginning,
    progress: Callable[[int, int], None] = lambda day, of: None,
) -> list[Lived]:
    """Day after day under one strategy."""
    rng = np.random.default_rng((settings.seed, 7))
    memory = {number - _BEFORE: material for number, material in enumerate(beginning.days)}
    life = _Life(beginning.champion, [beginning.seen], memory)
    for day in range(1, settings.days + 1):
        progress(day - 1, settings.days)
        # The world goes on without the failing disk once it was found.
        world = settings.world if day < life.repaired else replace(settings.world, creep_a_day=0.0)
        traces = live(world, day, signatures, settings.seed)
        lived, events = _watch(world, life, day, traces, beginning.days[-1])
        said = vet(world, settings.people, day, traces, events, rng)
        life.said += said
        life.repaired = min([life.repaired, *(one.repaired for one in said if one.repaired is not None)])
        outcome, seconds = _learn(strategy, settings, life, day, traces, beginning.standard)
        life.days.append(Lived(day, world.brings_new(day), *lived, outcome, seconds))
    progress(settings.days, settings.days)
    return life.days


def run_month(
    settings: MonthSettings, out: Path, names: Sequence[str] = (), progress: Callable[[str, int, int], None] = _silent
) -> list[Row]:
    """Every strategy named, or all, and a picture; each is written as it ends, and what is there is not run again."""
    if unknown := set(names) - {strategy.name for strategy in STRATEGIES}:
        there = ", ".join(strategy.name for strategy in STRATEGIES)
        raise SettingsError(f"no strategy {', '.join(sorted(unknown))}; there are {there}")
    torch.set_num_threads(1)  # small batches; and sums do not depend on the machine
    paths = {one: out / f"{one.name}.json" for one in STRATEGIES if not names or one.name in names}
    missing = [strategy for strategy, path in paths.items() if not path.exists()]
    if missing:
        progress("the first champion", 0, settings.days)
        beginning = begin(settings, read_signatures(), golden.standard())
    for strategy in missing:
        tell = partial(progress, strategy.name)
        write_days(paths[strategy], live_month(strategy, settings, read_signatures(), beginning, tell))
    months = {strategy.name: read_days(path) for strategy, path in paths.items()}
    draw(months, out / "month.png")
    return [summarise(name, days) for name, days in months.items()]


def _watch(
    world: World, life: _Life, day: int, traces: list[Trace], first: Material
) -> tuple[tuple[float, float, float, bool, float, float], list[Event]]:
    """Score a day as the live service would; what was found, and the events."""
    detector = life.champion
    tracker, events = Tracker(_EVENTS), dict[str, Event]()
    normal_error, ill_alarms = [], []
    for moment, labels in moments(traces, every_s=_EVERY_S):
        scores = detector.score(moment)
        for change in tracker.update(moment, scores, detector.threshold):
            events[change.event.id] = change.event
        known, alarming = ~np.isnan(scores.score), scores.score > detector.threshold
        creeping = (labels.node == world.creeping_node) & (world.creep(day) > 0) & (labels.job_type != "idle")
        ill = labels.anomaly != ""
        normal_error.append(scores.error[known & ~ill & ~creeping & (labels.job_type != "mixed")])
        ill_alarms.append(alarming[known & ill & (labels.job_type != "mixed")])
    false = [event for event in events.values() if not truly(world, day, traces, event)]
    node_days = world.nodes * world.hours / 24
    found = (
        float(np.concatenate(normal_error).mean()),
        len(false) / node_days,
        mean(np.concatenate(ill_alarms).tolist()),
        world.creep(day) > 0,
        life.seen[-1].sight,
        on_normal(detector, first.held_out)[0],
    )
    return found, list(events.values())


def _learn(
    strategy: Strategy, settings: MonthSettings, life: _Life, day: int, traces: list[Trace], standard: golden.Golden
) -> tuple[str, float]:
    """The night after a day: how it ended, and the CPU seconds of training."""
    if strategy.start is None:
        return "never", 0.0
    today = settings.world.day(day)
    # A verdict that comes late is about an earlier day: it halts tonight all the same.
    if strategy.halt and any(one.known == day and one.vetted.verdict == "confirmed" for one in life.said):
        life.halted_until = day + settings.people.resume_days
        return "halted", 0.0
    if strategy.halt and day < life.halted_until:
        return "halted", 0.0
    said = [one.vetted for one in life.said if one.known <= day and one.vetted.end_s > today.start_s]
    material = _gathered(settings, day, traces, said)
    _forget(settings.world, life, day)
    memory = list(life.memory.values()) if strategy.replay else []
    error, alarms = on_normal(life.champion, material.held_out)
    champion = Contestant("champion", error, alarms, life.seen[-1], life.champion.settings.false_alarm_rate)
    rule = settings.rule if strategy.gate else Rule(gate=False)
    outcome, refused, seconds = "kept", dict[str, str](), 0.0
    # The champion's weights calibrated anew can win only where nobody has a smaller error: no need to judge both.
    for start in dict.fromkeys((strategy.start, "recalibrated")):
        fresh, took_s = _trained(settings, start, material, memory, life.champion.stored)
        seconds += took_s
        challenger = judge(start, fresh, material.held_out, standard)
        choice = choose(champion, [challenger], rule, life.seen)
        refused |= choice.refused
        if choice.winner != "champion":
            life.champion, outcome = fresh, "promoted"
            life.seen.append(challenger.detection)
            break
    if not refused:
        _remember(settings, life, day, material)
    return outcome, seconds


def _forget(world: World, life: _Life, today: int) -> None:
    """Of a day that something was confirmed of after its night, nothing is remembered."""
    late = [one.vetted for one in life.said if one.known == today and one.vetted.verdict == "confirmed"]
    for number in [number for number in life.memory if number < today]:
        day = world.day(number)
        if any(vetted.start_s < day.end_s and vetted.end_s > day.start_s for vetted in late):
            del life.memory[number]


def _remember(settings: MonthSettings, life: _Life, day: int, material: Material) -> None:
    """As `replay.remember` does: when the memory is full a day leaves it by lot."""
    life.memory[day] = material
    if len(life.memory) > settings.replay_days:
        rng = np.random.default_rng((settings.seed, 8, day))
        del life.memory[sorted(life.memory)[int(rng.integers(len(life.memory)))]]


def _gathered(settings: MonthSettings, day: int, traces: list[Trace], said: list[Vetted]) -> Material:
    return gather(settings.world.day(day), Remembered(traces), said, settings.moments)[0]


def _trained(
    settings: MonthSettings,
    start: Start,
    material: Material,
    memory: Sequence[Material],
    champion: Stored | None,
    keep: int = 0,
) -> tuple[Detector, float]:
    """A calibrated detector and the CPU seconds it took; `keep` moments of each day in memory."""
    began_s = time.process_time()
    keep = keep or settings.replay_moments
    train: list[Moment] = [*material.train, *(m for old in memory for m in spread(old.train, keep))]
    validation: list[Moment] = [*material.validation, *(m for old in memory for m in spread(old.validation, keep))]
    if champion is None or start != "recalibrated":
        champion = _fitted(settings.training, train, validation, champion if start == "warm" else None)
    return calibrate(champion, validation, learn=train), time.process_time() - began_s


def _fitted(training: Training, train: list[Moment], validation: list[Moment], start: Stored | None) -> Stored:
    name = start.name if start else DEFAULT
    chosen = settings_of(name, training.warm_epochs if start else training.epochs, training, start)
    model = fit(windows_of(train), windows_of(validation), chosen, start=start.model if start else None).model
    with tempfile.TemporaryDirectory() as scratch:
        save(Path(scratch), name, model)  # as it would be stored, so that it has its hash
        return read(Path(scratch))
