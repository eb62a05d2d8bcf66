"""A simulated month under each strategy of learning -> errors, false events, detection, forgetting, training time.

Every strategy lives through the same days, and its first champion learned from the same days before them. Each day is
watched by the champion of the night before; then people vet what alarmed, late and sometimes wrongly, and the night
learns from what they have said by then. A night's own rules (`duel`, `material`, `brake`) are those of the cycle.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from clustertwin import engine
from clustertwin.core import files
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.detection import detector as detection
from clustertwin.telemetry.detection.detector import Detector, calibrate
from clustertwin.telemetry.learning.duel import golden_set
from clustertwin.telemetry.learning.duel.contestant import judge, on_normal
from clustertwin.telemetry.learning.duel.verdict_of_duel import Contestant, Rule, choose
from clustertwin.telemetry.learning.night.challengers import Start, Training, settings_of
from clustertwin.telemetry.learning.night.night_data import Material, gather, windows_of
from clustertwin.telemetry.learning.night.rehearsal_memory import spread
from clustertwin.telemetry.learning.night.verdicts import Vetted, has_changed
from clustertwin.telemetry.models import DEFAULT
from clustertwin.telemetry.models.model_store import Stored, read, save
from clustertwin.telemetry.models.training import fit
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.recording.trace_archive import MemoryArchive
from clustertwin.telemetry.simulation.signature import Signatures, read_signatures
from clustertwin.telemetry.studies.month.month_report import Lived, Row, draw, read_days, summarise, write_days
from clustertwin.telemetry.studies.month.simulated_month import World, fail, live
from clustertwin.telemetry.studies.month.simulated_vetting import People, Said, vet
from clustertwin.telemetry.studies.month.simulated_watch import probe, watch

_BEFORE = 4  # days that the first champion has seen, besides the first
_FIRST = "first"  # where it is kept


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
class Order:
    """One strategy to live through, complete enough to be sent to another process."""

    strategy: Strategy
    settings: MonthSettings
    out: Path


@dataclass(frozen=True, slots=True)
class Beginning:
    """What every strategy begins with."""

    standard: golden_set.Golden
    days: tuple[Material, ...]  # what the first champion learned from
    champion: Detector
    seen: golden_set.Detection  # what it sees of the golden set


@dataclass(slots=True)
class _Life:
    """What a strategy carries from day to day."""

    champion: Detector
    seen: list[golden_set.Detection]  # what each champion since the last change saw of the golden set, this one last
    memory: dict[int, Material]  # by day
    said: list[Said] = field(default_factory=list)
    halted_until: int = -1
    repaired: int = 10_000  # from this day on the disk is a good one
    days: list[Lived] = field(default_factory=list)


def run_month(
    settings: MonthSettings,
    out: Path,
    names: Sequence[str] = (),
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Row]:
    """Every strategy named, or all, and a picture; each is written as it ends, and what is there is not run again."""
    if unknown := set(names) - {strategy.name for strategy in STRATEGIES}:
        there = ", ".join(strategy.name for strategy in STRATEGIES)
        raise SettingsError(f"no strategy {', '.join(sorted(unknown))}; there are {there}")
    _claim(out, settings)
    chosen = [strategy for strategy in STRATEGIES if not names or strategy.name in names]
    missing = [Order(strategy, settings, out) for strategy in chosen if not _file(out, strategy).exists()]
    progress(len(chosen) - len(missing), len(chosen))
    if missing and not (out / _FIRST).exists():
        _write_first(out, settings)
    left = len(missing)

    def tell(index: int, name: str) -> None:
        nonlocal left
        left -= 1
        progress(len(chosen) - left, len(chosen))

    engine.each(live_one, missing, workers=workers, done=tell)
    months = {strategy.name: read_days(_file(out, strategy)) for strategy in chosen}
    draw(months, out / "month.png")
    return [summarise(name, days) for name, days in months.items()]


def live_one(order: Order) -> str:
    """A month under one strategy, written whole when it has ended; returns the strategy's name."""
    torch.set_num_threads(1)  # small batches; and sums do not depend on the machine
    signatures, standard = read_signatures(), golden_set.standard()
    champion = detection.read(order.out / _FIRST)
    days = _before(order.settings, signatures)
    beginning = Beginning(standard, tuple(days), champion, golden_set.detect(champion, standard))
    write_days(_file(order.out, order.strategy), live_month(order.strategy, order.settings, signatures, beginning))
    return order.strategy.name


def begin(settings: MonthSettings, signatures: Signatures, standard: golden_set.Golden) -> Beginning:
    """The first champion, of the days before the first."""
    days = _before(settings, signatures)
    champion, _ = _trained(settings, "scratch", days[-1], days[:-1], None, keep=settings.moments)
    return Beginning(standard, tuple(days), champion, golden_set.detect(champion, standard))


def live_month(
    strategy: Strategy, settings: MonthSettings, signatures: Signatures, beginning: Beginning
) -> list[Lived]:
    """Day after day under one strategy."""
    world, rng = settings.world, np.random.default_rng((settings.seed, 7))
    memory = {number - _BEFORE: material for number, material in enumerate(beginning.days)}
    life = _Life(beginning.champion, [beginning.seen], memory)
    worst = probe(world, fail(world, live(world, 0, signatures, settings.seed), world.creep(settings.days)))
    measured: dict[str, tuple[float, float]] = {}  # by version: most champions serve for more than a day
    for day in range(1, settings.days + 1):
        # The world goes on without the failing disk once it was found.
        creep = world.creep(day) if day < life.repaired else 0.0
        sound = live(world, day, signatures, settings.seed)
        traces = fail(world, sound, creep) if creep else sound
        watched = watch(world, life.champion, sound, traces)
        said = [] if day == world.holiday else vet(settings.people, day, watched, world.changed(day), rng)
        version = life.champion.version
        if version not in measured:
            first_error = on_normal(life.champion, beginning.days[-1].held_out)[0]
            measured[version] = worst.sight(life.champion), first_error
        found = Lived(
            day,
            world.brings_new(day),
            error=watched.error,
            false_events=watched.false_per_node_day,
            jobs_wrong=watched.jobs_wrong,
            jobs_found=watched.jobs_found,
            creep=creep,
            disk_events=len(watched.disk),
            disk_sight=measured[version][0],
            golden=life.seen[-1].sight,
            first_error=measured[version][1],
        )
        life.said += said
        life.repaired = min([life.repaired, *(one.repaired for one in said if one.repaired is not None)])
        outcome, seconds = _learn(strategy, settings, life, day, traces, beginning.standard)
        life.days.append(replace(found, outcome=outcome, training_s=seconds))
    return life.days


def _claim(out: Path, settings: MonthSettings) -> None:
    """A directory holds one month: strategies of another one are no comparison."""
    path, mine = out / "settings.json", json.dumps(asdict(settings), indent=1)
    if path.exists() and path.read_text() != mine:
        raise SettingsError(f"{out}: holds a month with other settings, see {path.name}; choose another directory")
    files.make_directory(out)
    files.write(path, mine.encode())


def _write_first(out: Path, settings: MonthSettings) -> None:
    torch.set_num_threads(1)
    champion = begin(settings, read_signatures(), golden_set.standard()).champion
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        detection.save(Path(scratch) / _FIRST, champion)
        (Path(scratch) / _FIRST).rename(out / _FIRST)


def _before(settings: MonthSettings, signatures: Signatures) -> list[Material]:
    days = range(-_BEFORE, 1)
    return [_gathered(settings, day, live(settings.world, day, signatures, settings.seed), []) for day in days]


def _file(out: Path, strategy: Strategy) -> Path:
    return out / f"{strategy.name}.json"


def _learn(
    strategy: Strategy, settings: MonthSettings, life: _Life, day: int, traces: list[Trace], standard: golden_set.Golden
) -> tuple[str, float]:
    """The night after a day: how it ended, and the CPU seconds of training."""
    if strategy.start is None:
        return "never", 0.0
    today = settings.world.day(day)
    if strategy.halt and _pulled(settings.world, life, day):
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
    changed = has_changed(said)
    outcome, refused, seconds = "kept", dict[str, str](), 0.0
    # The champion's weights calibrated anew can win only where nobody has a smaller error: no need to judge both.
    for start in dict.fromkeys((strategy.start, "recalibrated")):
        fresh, took_s = _trained(settings, start, material, memory, life.champion.stored)
        seconds += took_s
        challenger = judge(start, fresh, material.held_out, standard)
        choice = choose(champion, [challenger], rule, life.seen, changed)
        refused |= choice.refused
        if choice.winner != "champion":
            life.champion, outcome = fresh, "promoted"
            life.seen = [*(() if changed else life.seen), challenger.detection]
            break
    if not refused:
        _remember(settings, life, day, material)
    return outcome, seconds


def _pulled(world: World, life: _Life, today: int) -> bool:
    """As `brake` does: by what was confirmed of today, or today of a day whose night had learned from it."""
    learned = {lived.day for lived in life.days if lived.outcome == "promoted"}
    about = {
        world.number(one.vetted.start_s)
        for one in life.said
        if one.known == today and one.vetted.verdict == "confirmed"
    }
    return bool(about & (learned | {today}))


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
    return gather(settings.world.day(day), MemoryArchive(traces), said, settings.moments)[0]


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
