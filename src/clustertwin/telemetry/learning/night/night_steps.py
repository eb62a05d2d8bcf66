"""The steps of a night, one function each: what earlier steps left -> a JSON document for the journal.

`nightly_cycle` calls them in order. A step reads its large inputs (moments, challengers) from the night's directory and
writes its large outputs there, before its document is stored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin import engine
from clustertwin.core import files
from clustertwin.core.errors import TwinError
from clustertwin.telemetry.detection import detector_store
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.champions import champion_store, registry_spool, version_store
from clustertwin.telemetry.learning.duel.contestant_evaluation import evaluate_contestant, evaluate_on_normal
from clustertwin.telemetry.learning.duel.duel_decision import Contestant, decide
from clustertwin.telemetry.learning.duel.duel_figure import draw_duel
from clustertwin.telemetry.learning.duel.golden_set import GoldenSetResult
from clustertwin.telemetry.learning.night import rehearsal_memory
from clustertwin.telemetry.learning.night.challengers import ChallengerJob, Start, train_challenger, training_settings
from clustertwin.telemetry.learning.night.day_census import DayCensus
from clustertwin.telemetry.learning.night.day_checks import check_day
from clustertwin.telemetry.learning.night.day_sampling import ROLES, sample_day
from clustertwin.telemetry.learning.night.lineage import lineage, night_record
from clustertwin.telemetry.learning.night.night_run import NightResult, NightRun, nights_directory
from clustertwin.telemetry.learning.night.training_plan import (
    TrainingPlan,
    plan_epochs,
    training_speed,
    warm_start_directory,
)
from clustertwin.telemetry.learning.night.training_windows import training_windows
from clustertwin.telemetry.learning.night.verdicts import VettedSpan
from clustertwin.telemetry.models.model_store import read as read_model
from clustertwin.telemetry.moments.moment_files import write_moments

Document = dict[str, Any]


def begin(run: NightRun, champion: str, verdicts: Sequence[VettedSpan]) -> Document:
    """Store what the night starts from: a repeated run uses the same champion and the same verdicts."""
    spans = [asdict(span) for span in verdicts]
    return {"champion": champion, "start_s": run.day.start_s, "end_s": run.day.end_s, "said": spans}


def gather(run: NightRun, verdicts: Sequence[VettedSpan]) -> Document:
    """Sample the day's moments -> its census."""

    def progress(done: int, total: int) -> None:
        run.context.progress("gather", done, total)

    split, census = sample_day(run.day, run.context.archive, verdicts, run.settings.moments, progress)
    for role in ROLES:
        write_moments(run.moments_file(role), getattr(split, role))
    return asdict(census)


def check(run: NightRun, census: DayCensus, champion: Detector, new_normal: bool) -> Document:
    """Is the day fit to learn from?"""
    run.context.progress("check", 0, 1)
    split = run.split()
    try:
        alarming = evaluate_on_normal(champion, [*split.validation, *split.held_out])[1]
    except TwinError:
        alarming = 0.0  # there is nothing to score; the number of windows is too small as well
    serving = champion_store.read_champion(run.home)
    origin = version_store.find_version(run.home, serving.version).lineage if serving else {}
    last = DayCensus(**origin["census"]) if "census" in origin else None
    return asdict(check_day(census, split, alarming, last, new_normal, run.settings.limits))


def plan(run: NightRun, champion: Detector) -> Document:
    """Which challengers are trained, for how many epochs, and from which weights."""
    settings = run.settings
    windows = training_windows(run.moments("train"))
    replayed = [path.name for path in rehearsal_memory.days_before(run.memory, run.day.name)]
    sources = [run.home / version_store.DIRECTORY / champion.version, *_earlier_challengers(run)]
    candidates: list[tuple[str, Start]] = []
    starts: dict[str, str] = {}
    for architecture in settings.architectures:
        if "scratch" in settings.starts:
            candidates.append((architecture, "scratch"))
        if "warm" in settings.starts and (source := warm_start_directory(architecture, sources)):
            candidates.append((architecture, "warm"))
            starts[f"{architecture}/warm"] = str(source)
    speeds = {}
    architectures = dict.fromkeys(architecture for architecture, _ in candidates)
    for i, architecture in enumerate(architectures):
        run.context.progress("plan", i, len(architectures))
        speeds[architecture] = training_speed(architecture, windows)
    windows_per_moment = len(windows) / max(len(np.unique(windows.start_s)), 1)
    count = round(len(windows) + windows_per_moment * settings.replay_moments * len(replayed))
    budget_s = settings.budget_s * settings.workers
    epochs, without = plan_epochs(speeds, candidates, count, budget_s, settings.training)
    if "recalibrated" in settings.starts:
        name = f"{champion.stored.name}/recalibrated"
        epochs[name], starts[name] = 0, str(sources[0])
    return asdict(TrainingPlan(epochs, without, starts, replayed, speeds))


def train(run: NightRun, plan: TrainingPlan) -> Document:
    """Train every planned challenger, side by side."""
    jobs = [_challenger_job(run, name, plan) for name in plan.epochs]
    finished = 0

    def done(index: int, name: str) -> None:
        nonlocal finished
        finished += 1
        run.context.crash_point(f"trained {name}")
        run.context.progress("train", finished, len(jobs))

    run.context.progress("train", 0, len(jobs))
    return {"trained": engine.each(train_challenger, jobs, workers=run.settings.workers, done=done)}


def judge(run: NightRun, champion: Detector, plan: TrainingPlan) -> Document:
    """Evaluate champion and challengers on the held-out moments and on the golden set."""
    held_out = run.moments("held_out")
    golden = run.context.golden()
    if not any(moment.jobs for moment in held_out):
        # Detectors of a site without job labels are calibrated on threads without jobs only.
        golden = golden.without_jobs()
    contestants = [evaluate_contestant("champion", champion, held_out, golden)]
    notes = []
    for i, name in enumerate(plan.epochs):
        run.context.progress("judge", i, len(plan.epochs))
        try:
            challenger = detector_store.read(run.challenger_directory(name))
            contestants.append(evaluate_contestant(name, challenger, held_out, golden))
        except TwinError as error:
            notes.append(f"{name} does not compete: {error}")  # a damaged challenger must not stop the others
    return {"contestants": [asdict(contestant) for contestant in contestants], "notes": notes}


def choose(run: NightRun, contestants: Sequence[Contestant], new_normal: bool) -> Document:
    """Decide the duel. `best` is the challenger to store: the winner or, if the champion wins, the smallest error."""
    champion, challengers = contestants[0], contestants[1:]
    baselines = _baseline_results(run.home, champion.detection.golden)
    choice = decide(champion, challengers, run.settings.rule, baselines, new_normal)
    best = choice.winner
    if choice.winner == champion.name:
        best = min(challengers, key=lambda c: c.error).name if challengers else ""
    # The token of the decision, not of a later run that carries it out: a person may have decided in between.
    return {"choice": asdict(choice), "best": best, "fence": run.fence}


def enter(
    run: NightRun,
    chosen: Document,
    result: NightResult,
    census: DayCensus,
    plan: TrainingPlan,
    verdicts: Sequence[VettedSpan],
) -> Document:
    """Store the best challenger as a version, with its lineage. `chosen` is the document of `choose`."""
    best = chosen["best"]
    origin = lineage(run, result, census, plan, verdicts, best) | {"fence": chosen["fence"]}
    version = version_store.add_version(run.home, detector_store.read(run.challenger_directory(best)), origin)
    return {"version": version, "sha256": version_store.digest(run.home / version_store.DIRECTORY / version)}


def promote(run: NightRun, version: str, fence: int, why: str, new_base: bool) -> Document:
    """Put the winner in service."""
    return asdict(champion_store.promote(run.home, version, fence, why, run.context.clock(), new_base))


def remember(run: NightRun) -> Document:
    """Add the day to the rehearsal memory."""
    settings = run.settings
    rehearsal_memory.add_day(run.memory, run.day.name, run.split(), settings.replay_moments, settings.replay_days)
    return {}


def record(run: NightRun, result: NightResult, census: DayCensus, plan: TrainingPlan, stored: Document) -> Document:
    """Put the night's report into the spool of the registry. `stored` is the document of `enter`, or empty."""
    if run.context.open_registry is not None:
        report = run.directory / "report"
        draw_duel(result.contestants, report / "duel.png")
        files.write(report / "night.json", json.dumps(asdict(result), indent=1))
        registry_spool.add(run.home, night_record(run, result, census, plan, stored))
    return {}


def _challenger_job(run: NightRun, name: str, plan: TrainingPlan) -> ChallengerJob:
    architecture = name.partition("/")[0]
    source = plan.start_directory(name)
    stored = read_model(source) if source else None
    replayed = [run.memory / day for day in plan.replayed]

    def moment_files(role: str) -> tuple[Path, ...]:
        return run.moments_file(role), *(directory / f"{role}.safetensors" for directory in replayed)

    return ChallengerJob(
        name,
        training_settings(architecture, plan.epochs[name], run.settings.training, stored),
        run.challenger_directory(name),
        moment_files("train"),
        moment_files("validation"),
        source,
        run.settings.training.windows,
        run.settings.alarms,
    )


def _earlier_challengers(run: NightRun) -> list[Path]:
    """Directories of the challengers of earlier nights, newest night first."""
    nights = [path for path in nights_directory(run.home).iterdir() if path.name < run.day.name]
    return [directory for night in sorted(nights, reverse=True) for directory in sorted(night.glob("challengers/*"))]


def _baseline_results(home: Path, golden_sha256: str) -> list[GoldenSetResult]:
    """Results on this golden set of the champions that the next one is compared with."""
    serving = champion_store.read_champion(home)
    baselines = serving.baselines if serving else ()
    documents = [
        stored.lineage["detection"]
        for stored in version_store.versions(home)
        if stored.version in baselines and "detection" in stored.lineage
    ]
    return [GoldenSetResult.from_json(document) for document in documents if document["golden"] == golden_sha256]
