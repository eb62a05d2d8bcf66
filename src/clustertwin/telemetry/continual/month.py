"""A simulated month under each strategy of learning -> errors, false events, detection, forgetting, training time.

Every strategy lives through the same days, and its first champion learned from the same days before them. Each day is
scored by the champion of the night before; then people vet what alarmed, late and sometimes wrongly, and the night
learns from what they have said by then.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.campaign.simulation.signature import Signatures, read_signatures
from clustertwin.telemetry.continual import golden
from clustertwin.telemetry.continual.challengers import Training, settings_of
from clustertwin.telemetry.continual.duel import Contestant, Rule, choose
from clustertwin.telemetry.continual.judging import judge, on_normal
from clustertwin.telemetry.continual.material import Material, gather, windows_of
from clustertwin.telemetry.continual.past import Remembered
from clustertwin.telemetry.continual.replay import spread
from clustertwin.telemetry.continual.verdicts import Vetted
from clustertwin.telemetry.continual.world import World, live
from clustertwin.telemetry.detection.detector import Detector, calibrate
from clustertwin.telemetry.detection.events import Event, EventSettings, Tracker
from clustertwin.telemetry.detection.moment import Moment, moments
from clustertwin.telemetry.models import DEFAULT
from clustertwin.telemetry.models.store import Stored, read, save
from clustertwin.telemetry.recording import durable
from clustertwin.telemetry.training import fit

_EVERY_S = 150
_BEFORE = 4  # days that the first champion has seen, besides the first
#: As the service has them, at the stride of a simulated day: what alarms twice in a row is an event.
_EVENTS = EventSettings(needed_s=300, of_s=450, calm_s=300, same_cause_s=300, longest_step_s=_EVERY_S)


@dataclass(frozen=True, slots=True)
class Strategy:
    name: str
    start: str = ""  # scratch or warm; empty: never retrain
    replay: bool = False
    gate: bool = False
    halt: bool = False


#: Beside each other in the table.
STRATEGIES: tuple[Strategy, ...] = (
    Strategy("never"),
    Strategy("scratch", "scratch"),
    Strategy("warm", "warm"),
    Strategy("warm+replay", "warm", replay=True),
    Strategy("warm+replay+gate", "warm", replay=True, gate=True),
    Strategy("warm+replay+halt", "warm", replay=True, halt=True),
    Strategy("warm+replay+gate+halt", "warm", replay=True, gate=True, halt=True),
)


@dataclass(frozen=True, slots=True)
class People:
    """How verdicts come about."""

    overlooked: float = 0.1  # of true events are dismissed
    mistaken: float = 0.01  # of false events are confirmed
    late: float = 0.3  # of verdicts arrive a day or two after the night
    resume_days: int = 1  # until somebody lifts a halt
    repair_days: int = 2  # until a failing disk is replaced, once somebody confirmed it


@dataclass(frozen=True, slots=True)
class Lived:
    """One day under one strategy."""

    day: int
    error: float  # on what was truly normal
    false_events: float  # a node and day
    detected: float  # of the windows of jobs gone wrong; NaN: none went wrong
    creeping: bool  # the disk was failing, and nobody had found out
    golden: float  # mean recall on the golden set
    first_error: float  # on the first day's held-out moments: what is forgotten shows here
    outcome: str
    training_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """A month in one line."""

    strategy: str
    error: float
    false_events: float
    detected: float
    unnoticed: int  # days until the failing disk was replaced
    golden: float  # on the last day
    forgetting: float  # the last first_error over the first
    promoted: int
    training_h: float


@dataclass(frozen=True, slots=True)
class MonthSettings:
    days: int = 30
    world: World = World()
    people: People = People()
    training: Training = Training(epochs=6, warm_epochs=3)
    moments: int = 50
    replay_moments: int = 2
    replay_days: int = 8
    rule: Rule = Rule()
    seed: int = 0


@dataclass(slots=True)
class _Life:
    """What a strategy carries from day to day."""

    champion: Detector
    seen: golden.Detection  # what the champion sees of the golden set
    floor: float
    memory: list[Material] = field(default_factory=list)
    said: list[tuple[int, Vetted]] = field(default_factory=list)  # (known from this day on, verdict)
    halted_until: int = -1
    repaired: int = 10_000  # from this day on the disk is a good one
    days: list[Lived] = field(default_factory=list)


def _silent(strategy: str, day: int, of: int) -> None:
    """Progress that nobody watches."""


def live_month(
    strategy: Strategy,
    settings: MonthSettings,
    signatures: Signatures,
    standard: golden.Golden,
    progress: Callable[[int, int], None] = lambda day, of: None,
) -> list[Lived]:
    """Day after day under one strategy."""
    rng = np.random.default_rng((settings.seed, 7))
    early = [
        _gathered(settings, day, live(settings.world, day, signatures, settings.seed), []) for day in range(-_BEFORE, 1)
    ]
    first = early[-1]
    champion, _ = _trained(settings, first, early[:-1], None, keep=settings.moments)
    seen = golden.detect(champion, standard)
    life = _Life(champion, seen, seen.mean, early)
    for day in range(1, settings.days + 1):
        progress(day - 1, settings.days)
        # The world goes on without the failing disk once it was found.
        world = settings.world if day < life.repaired else replace(settings.world, creep_a_day=0.0)
        traces = live(world, day, signatures, settings.seed)
        lived, events = _watch(world, life, day, traces, first)
        life.said += _vet(world, settings.people, life, day, traces, events, rng)
        outcome, seconds = _learn(strategy, settings, life, day, traces, standard)
        life.days.append(Lived(day, *lived, outcome, seconds))
    progress(settings.days, settings.days)
    return life.days


def run_month(
    settings: MonthSettings, out: Path, names: Sequence[str] = (), progress: Callable[[str, int, int], None] = _silent
) -> list[Row]:
    """Every strategy named, or all; each is written as it ends, and one that is there already is not run again."""
    if unknown := set(names) - {strategy.name for strategy in STRATEGIES}:
        there = ", ".join(strategy.name for strategy in STRATEGIES)
        raise SettingsError(f"no strategy {', '.join(sorted(unknown))}; there are {there}")
    rows = []
    for strategy in STRATEGIES:
        if names and strategy.name not in names:
            continue
        path = out / f"{strategy.name}.json"
        if not path.exists():
            tell = partial(progress, strategy.name)
            write_days(path, live_month(strategy, settings, read_signatures(), golden.standard(), tell))
        rows.append(summarise(strategy.name, read_days(path)))
    return rows


def summarise(strategy: str, days: Sequence[Lived]) -> Row:
    """The month's row; a mean of nothing is NaN."""
    return Row(
        strategy,
        error=float(np.mean([day.error for day in days])),
        false_events=float(np.mean([day.false_events for day in days])),
        detected=_mean([day.detected for day in days if not np.isnan(day.detected)]),
        unnoticed=sum(day.creeping for day in days),
        golden=days[-1].golden,
        forgetting=days[-1].first_error / days[0].first_error,
        promoted=sum(day.outcome == "promoted" for day in days),
        training_h=sum(day.training_s for day in days) / 3600,
    )


def write_days(path: Path, days: Sequence[Lived]) -> None:
    durable.make_directory(path.parent)
    durable.replace(path, json.dumps([asdict(day) for day in days], indent=1).encode())


def read_days(path: Path) -> list[Lived]:
    return [Lived(**row) for row in json.loads(path.read_text())]


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
    false = [event for event in events.values() if not _truly(world, day, traces, event)]
    node_days = world.nodes * world.hours / 24
    found = (
        float(np.concatenate(normal_error).mean()),
        len(false) / node_days,
        _mean(np.concatenate(ill_alarms).tolist()),
        world.creep(day) > 0,
        life.seen.mean,
        on_normal(detector, first.held_out)[0],
    )
    return found, list(events.values())


def _truly(world: World, day: int, traces: list[Trace], event: Event) -> bool:
    """Was anything wrong with a thread of this event while it lasted?"""
    if world.creep(day) > 0 and world.creeping_node in event.nodes:
        return True
    places = dict(event.places)
    end_s = event.end_s or event.seen_s
    return any(
        span.anomaly and span.start_s < end_s and span.end_s > event.onset_s - _EVERY_S
        for trace in traces
        for span in trace.spans
        if set(span.cpus) & set(places.get(span.node, ()))
    )


def _vet(
    world: World,
    people: People,
    life: _Life,
    day: int,
    traces: list[Trace],
    events: list[Event],
    rng: np.random.Generator,
) -> list[tuple[int, Vetted]]:
    """What people say of the day's events, and from which night on it is known."""
    said = []
    for event in sorted(events, key=lambda event: event.id):
        true = _truly(world, day, traces, event)
        luck, delay = rng.random(), int(rng.integers(1, 3)) if rng.random() < people.late else 0
        confirmed = luck >= people.overlooked if true else luck < people.mistaken
        if confirmed and world.creep(day) > 0 and world.creeping_node in event.nodes:
            life.repaired = min(life.repaired, day + delay + people.repair_days)
        end_s = event.end_s or event.seen_s
        said += [
            (day + delay, Vetted(node, cpus, event.onset_s, end_s, "confirmed" if confirmed else "dismissed"))
            for node, cpus in event.places
        ]
    return said


def _learn(
    strategy: Strategy, settings: MonthSettings, life: _Life, day: int, traces: list[Trace], standard: golden.Golden
) -> tuple[str, float]:
    """The night after a day: how it ended, and the seconds of training."""
    if not strategy.start:
        return "never", 0.0
    today = settings.world.day(day)
    # A verdict that comes late is about an earlier day: it halts tonight all the same.
    news = [vetted for known, vetted in life.said if known == day]
    if strategy.halt and any(vetted.verdict == "confirmed" for vetted in news):
        life.halted_until = day + settings.people.resume_days
        return "halted", 0.0
    if strategy.halt and day < life.halted_until:
        return "halted", 0.0
    material = _gathered(
        settings, day, traces, [v for known, v in life.said if known <= day and v.end_s > today.start_s]
    )
    memory = life.memory if strategy.replay else []
    start = life.champion.stored if strategy.start == "warm" else None
    fresh, seconds = _trained(settings, material, memory, start)
    rng = np.random.default_rng((settings.seed, 8, day))
    life.memory.append(material)
    if len(life.memory) > settings.replay_days:
        del life.memory[int(rng.integers(len(life.memory)))]
    error, alarms = on_normal(life.champion, material.held_out)
    champion = Contestant("champion", error, alarms, life.seen, life.champion.settings.false_alarm_rate)
    challenger = judge("challenger", fresh, material.held_out, standard)
    rule = settings.rule if strategy.gate else Rule(gate=False)
    if choose(champion, [challenger], rule, life.floor).winner == "champion":
        return "kept", seconds
    life.champion, life.seen = fresh, challenger.detection
    life.floor = max(life.floor, life.seen.mean)
    return "promoted", seconds


def _gathered(settings: MonthSettings, day: int, traces: list[Trace], said: list[Vetted]) -> Material:
    return gather(settings.world.day(day), Remembered(traces), said, settings.moments)[0]


def _trained(
    settings: MonthSettings, material: Material, memory: Sequence[Material], start: Stored | None, keep: int = 0
) -> tuple[Detector, float]:
    """A calibrated detector of the default architecture, and the seconds it took; `keep` moments of each memory."""
    began_s = time.perf_counter()
    keep = keep or settings.replay_moments
    train: list[Moment] = [*material.train, *(m for old in memory for m in spread(old.train, keep))]
    validation: list[Moment] = [*material.validation, *(m for old in memory for m in spread(old.validation, keep))]
    training = settings.training
    name = start.name if start else DEFAULT
    chosen = settings_of(name, training.warm_epochs if start else training.epochs, training, start)
    model = fit(windows_of(train), windows_of(validation), chosen, start=start.model if start else None).model
    with tempfile.TemporaryDirectory() as scratch:
        save(Path(scratch), name, model)  # as it would be stored, so that it has its hash
        stored = read(Path(scratch))
    return calibrate(stored, validation, learn=train), time.perf_counter() - began_s


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
