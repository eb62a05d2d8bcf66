"""Run the month study: settings and strategies -> one file per strategy, a figure and a summary of each.

Every strategy gets the same days and the same first champion. Each day is watched by the champion of the night before.
Then the reviewers give their verdicts, and the night learns from the verdicts that are known by then.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from clustertwin import engine
from clustertwin.core import files
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection import detector_store
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.duel.contestant_evaluation import evaluate_on_normal
from clustertwin.telemetry.learning.night.day_sampling import DaySplit
from clustertwin.telemetry.simulation.signature import Signatures, read_signatures
from clustertwin.telemetry.studies.month.month_report import (
    DayResult,
    StrategySummary,
    draw_month,
    read_days,
    summarise,
    write_days,
)
from clustertwin.telemetry.studies.month.month_settings import STRATEGIES, MonthSettings, Strategy
from clustertwin.telemetry.studies.month.simulated_month import simulate_day, with_failing_disk
from clustertwin.telemetry.studies.month.simulated_night import (
    StrategyState,
    run_simulated_night,
    sample_split,
    train_detector,
)
from clustertwin.telemetry.studies.month.simulated_vetting import vet_day
from clustertwin.telemetry.studies.month.simulated_watch import disk_probe, watch_day

_DAYS_BEFORE = 4  # the first champion learns from these days and from day 0
_FIRST_CHAMPION = "first"  # its directory


@dataclass(frozen=True, slots=True)
class StrategyRun:
    """One strategy to run, with everything that another process needs."""

    strategy: Strategy
    settings: MonthSettings
    out: Path


def run_month(
    settings: MonthSettings,
    out: Path,
    names: Sequence[str] = (),
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[StrategySummary]:
    """Run the named strategies, or all. A strategy whose file exists in `out` is not run again."""
    if unknown := set(names) - {strategy.name for strategy in STRATEGIES}:
        known = ", ".join(strategy.name for strategy in STRATEGIES)
        raise SettingsError(f"no strategy {', '.join(sorted(unknown))}; choose from {known}")
    _claim_directory(out, settings)
    chosen = [strategy for strategy in STRATEGIES if not names or strategy.name in names]
    missing = [StrategyRun(strategy, settings, out) for strategy in chosen if not _file(out, strategy).exists()]
    finished = len(chosen) - len(missing)
    progress(finished, len(chosen))
    if missing and not (out / _FIRST_CHAMPION).exists():
        _write_first_champion(out, settings)

    def done(index: int, name: str) -> None:
        nonlocal finished
        finished += 1
        progress(finished, len(chosen))

    engine.each(run_strategy, missing, workers=workers, done=done)
    months = {strategy.name: read_days(_file(out, strategy)) for strategy in chosen}
    draw_month(months, out / "month.png")
    return [summarise(name, days) for name, days in months.items()]


def run_strategy(run: StrategyRun) -> str:
    """Simulate the month under one strategy, write its days and return the strategy's name."""
    torch.set_num_threads(1)  # the batches are small, and sums must not depend on the number of cores
    signatures = read_signatures()
    days = _days_before(run.settings, signatures)
    champion = detector_store.read(run.out / _FIRST_CHAMPION)
    write_days(_file(run.out, run.strategy), simulate_month(run.strategy, run.settings, signatures, days, champion))
    return run.strategy.name


def simulate_month(
    strategy: Strategy, settings: MonthSettings, signatures: Signatures, days_before: list[DaySplit], champion: Detector
) -> list[DayResult]:
    """Watch, vet and learn, day after day. The first champion learned from `days_before`, or is the bundled one."""
    scenario, rng = settings.world, np.random.default_rng((settings.seed, 7))
    learned = scenario.first == "learned"
    memory = {number - _DAYS_BEFORE: split for number, split in enumerate(days_before)} if learned else {}
    state = StrategyState(champion, memory, learned=learned, shadow=not learned)
    day_0 = simulate_day(scenario, 0, signatures, settings.seed)
    probe = disk_probe(scenario, with_failing_disk(scenario, day_0, scenario.disk_creep(settings.days)))
    disk_recall: dict[str, float] = {}  # by version: most champions serve for more than a day
    first_error: dict[str, float] = {}
    for day in range(1, settings.days + 1):
        creep = scenario.disk_creep(day) if day < state.repaired else 0.0
        healthy = simulate_day(scenario, day, signatures, settings.seed)
        traces = with_failing_disk(scenario, healthy, creep) if creep else healthy
        version = state.champion.version
        if version not in disk_recall:
            disk_recall[version] = probe.recall(state.champion)
            first_error[version] = evaluate_on_normal(state.champion, days_before[-1].held_out)[0]
        watched = watch_day(scenario, state.champion, healthy, traces, state.questions)
        if settings.vetted and day != scenario.holiday:
            verdicts = vet_day(settings.people, day, watched, scenario.last_change(day), rng)
            state.verdicts += verdicts
            state.repaired = min([state.repaired, *(v.repaired for v in verdicts if v.repaired is not None)])
        in_shadow = state.shadow
        night = run_simulated_night(strategy, settings, state, day, traces)
        state.days.append(
            DayResult(
                day,
                new=scenario.is_change(day),
                error=watched.error,
                false_events=watched.false_per_node_day,
                jobs_wrong=watched.jobs_wrong,
                jobs_found=watched.jobs_found,
                creep=creep,
                disk_events=len(watched.disk),
                disk_sight=disk_recall[version],
                golden=night.informedness,
                first_error=first_error[version],
                outcome=night.outcome,
                training_s=night.training_s,
                shadow=in_shadow,
                new_wrong=watched.new_wrong,
                new_found=watched.new_found,
                because=night.because,
            )
        )
    return state.days


def _claim_directory(out: Path, settings: MonthSettings) -> None:
    """A directory holds one month: strategies with different settings are not comparable."""
    path, text = out / "settings.json", json.dumps(asdict(settings), indent=1)
    if path.exists() and path.read_text() != text:
        raise SettingsError(f"{out}: holds a month with other settings, see {path.name}; choose another directory")
    files.make_directory(out)
    files.write(path, text)


def _write_first_champion(out: Path, settings: MonthSettings) -> None:
    torch.set_num_threads(1)
    if settings.world.first == "bundled":
        champion = bundled()
    else:
        *memory, split = _days_before(settings, read_signatures())
        champion, _ = train_detector(settings, "scratch", split, memory, None, replay_moments=settings.moments)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        detector_store.save(Path(scratch) / _FIRST_CHAMPION, champion)
        files.publish_directory(Path(scratch) / _FIRST_CHAMPION, out / _FIRST_CHAMPION)


def _days_before(settings: MonthSettings, signatures: Signatures) -> list[DaySplit]:
    days = range(-_DAYS_BEFORE, 1) if settings.world.first == "learned" else range(1)
    return [
        sample_split(settings, day, simulate_day(settings.world, day, signatures, settings.seed))[0] for day in days
    ]


def _file(out: Path, strategy: Strategy) -> Path:
    return out / f"{strategy.name}.json"
