"""The steps of a night, one function each: what earlier steps left -> a JSON document for the journal.

`nightly_cycle` calls them in order. A step reads its large inputs (moments, challengers) from the night's directory and
writes its large outputs there, before its document is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin import engine
from clustertwin.core import files
from clustertwin.core.errors import TwinError
from clustertwin.telemetry.detection import detector_store
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.champions import champion_store, registry_spool, version_store
from clustertwin.telemetry.learning.duel.contestant_evaluation import (
    NormalMoments,
    evaluate_contestant,
    evaluate_on_normal,
    unable,
)
from clustertwin.telemetry.learning.duel.duel_decision import Contestant, decide
from clustertwin.telemetry.learning.duel.duel_figure import draw_duel
from clustertwin.telemetry.learning.duel.golden_set import GoldenSet
from clustertwin.telemetry.learning.duel.site_golden_set import SiteGoldenSet, site_golden_set
from clustertwin.telemetry.learning.night import rehearsal_memory
from clustertwin.telemetry.learning.night.challengers import (
    ChallengerJob,
    Start,
    TrainedChallenger,
    train_challenger,
    training_settings,
)
from clustertwin.telemetry.learning.night.day_census import DayCensus
from clustertwin.telemetry.learning.night.day_checks import check_day
from clustertwin.telemetry.learning.night.day_sampling import ROLES, sample_day
from clustertwin.telemetry.learning.night.lineage import lineage, night_record
from clustertwin.telemetry.learning.night.night_run import NightResult, NightRun, nights_directory
from clustertwin.telemetry.learning.night.step_journal import read_document
from clustertwin.telemetry.learning.night.training_plan import (
    TrainingPlan,
    plan_epochs,
    training_speed,
    warm_start_directory,
)
from clustertwin.telemetry.learning.night.training_windows import training_windows
from clustertwin.telemetry.learning.night.verdicts import VettedSpan, called_normal
from clustertwin.telemetry.models.model_store import read as read_model
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.moment_files import read_moments, write_moments

Document = dict[str, Any]
_BASELINES = 2  # earlier champions that are measured again
_GONE_NIGHTS = 3  # a node that had no data in as many nights is not expected any more


def begin(run: NightRun, champion: str, verdicts: Sequence[VettedSpan]) -> Document:
    """Store what the night starts from: a repeated run uses the same champion, verdicts and fencing token.

    The token is that of the beginning, so that whatever a person decides after it outranks this night.
    """
    spans = [asdict(span) for span in verdicts]
    return {"champion": champion, "start_s": run.day.start_s, "end_s": run.day.end_s, "said": spans, "fence": run.fence}


def gather(run: NightRun, verdicts: Sequence[VettedSpan]) -> Document:
    """Sample the day's moments -> its census."""

    def progress(done: int, total: int) -> None:
        run.context.progress("gather", done, total)

    split, census = sample_day(run.day, run.context.archive, verdicts, run.settings.sampling, progress)
    for role in ROLES:
        write_moments(run.moments_file(role), getattr(split, role))
    return asdict(census)


def check(run: NightRun, census: DayCensus, champion: Detector, expected: bool) -> Document:
    """Is the day fit to learn from? `expected`: many alarms are a reason to learn, not to skip."""
    run.context.progress("check", 0, 1)
    split = run.split()
    try:
        alarming = evaluate_on_normal(champion, [*split.validation, *split.held_out])[1]
    except TwinError:
        alarming = 0.0  # there is nothing to score; the number of windows is too small as well
    serving = champion_store.read_champion(run.home)
    origin = version_store.find_version(run.home, serving.version).lineage if serving else {}
    last = _without_gone_nodes(run, DayCensus(**origin["census"])) if "census" in origin else None
    return asdict(check_day(census, split, alarming, last, expected, run.settings.limits))


def _without_gone_nodes(run: NightRun, last: DayCensus) -> DayCensus:
    """The census without nodes that the last nights did not see. Else a site whose nodes were replaced, or that has
    become smaller, would never learn again: the champion of the old nodes stays. A night without any data does not
    count: it says nothing about the nodes."""
    earlier = sorted(path for path in nights_directory(run.home).iterdir() if path.name < run.day.name)
    gathered = [path / "gather.json" for path in earlier if (path / "gather.json").exists()]
    nights = [nodes for path in gathered if (nodes := read_document(path)["result"]["seen"])][-_GONE_NIGHTS:]
    if len(nights) < _GONE_NIGHTS:
        return last
    seen = set().union(*nights)
    return replace(last, seen={node: part for node, part in last.seen.items() if node in seen})


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
    """Train every planned challenger, side by side. One that cannot be calibrated does not stop the others."""
    jobs = [_challenger_job(run, name, plan) for name in plan.epochs]
    finished = 0

    def done(index: int, result: TrainedChallenger) -> None:
        nonlocal finished
        finished += 1
        run.context.crash_point(f"trained {result.name}")
        run.context.progress("train", finished, len(jobs))

    run.context.progress("train", 0, len(jobs))
    results = engine.each(train_challenger, jobs, workers=run.settings.workers, done=done)
    failed = {result.name: result.failure for result in results if result.failure}
    return {"trained": [result.name for result in results if not result.failure], "failed": failed}


def judge(run: NightRun, champion: Detector, trained: Sequence[str], verdicts: Sequence[VettedSpan]) -> Document:
    """Evaluate champion, challengers and earlier champions on the held-out moments and on the golden set."""
    normal = NormalMoments(
        held_out := run.moments("held_out"), tuple(called_normal(moment, verdicts) for moment in held_out)
    )
    golden = _golden_set(run, held_out)
    notes: list[str] = []

    def evaluated(name: str, read: Callable[[], Detector]) -> list[Contestant]:
        try:
            return [evaluate_contestant(name, read(), normal, golden)]
        except TwinError as error:
            notes.append(f"{name} does not compete: {error}")  # a damaged challenger must not stop the others
            return []

    contestants = evaluated("champion", lambda: champion) or [unable("champion", golden)]
    for i, name in enumerate(trained):
        run.context.progress("judge", i, len(trained))
        contestants += evaluated(name, partial(detector_store.read, run.challenger_directory(name)))
    baselines: list[Contestant] = []
    for version in _earlier_champions(run.home, champion.version):
        baselines += evaluated(version, partial(version_store.read_version, run.home, version))
    document = {
        "kind": "this site" if isinstance(golden, SiteGoldenSet) else "shipped",
        "sha256": golden.sha256,
        "kinds": golden.kinds,
        "cases": len(golden.cases) if isinstance(golden, SiteGoldenSet) else len(golden.moments),
    }
    return {
        "contestants": [asdict(contestant) for contestant in contestants],
        "baselines": [asdict(contestant) for contestant in baselines],
        "golden": document,
        "notes": notes,
    }


def choose(run: NightRun, contestants: Sequence[Contestant], baselines: Sequence[Contestant], fence: int) -> Document:
    """Decide the duel. `best` is the challenger to store first: the winner, else the one that is worth most."""
    champion, challengers, rule = contestants[0], contestants[1:], run.settings.rule
    choice = decide(champion, challengers, rule, baselines)
    best = choice.winner
    if choice.winner == champion.name:
        best = max(challengers, key=lambda c: (c.worth(rule), -c.bits)).name if challengers else ""
    of_architecture: dict[str, Contestant] = {}
    for contestant in challengers:
        current = of_architecture.setdefault(_architecture(contestant.name), contestant)
        if contestant.name == best or (current.name != best and contestant.worth(rule) > current.worth(rule)):
            of_architecture[_architecture(contestant.name)] = contestant
    others = [contestant.name for contestant in of_architecture.values() if contestant.name != best]
    return {"choice": asdict(choice), "best": best, "others": others, "fence": fence}


def enter(
    run: NightRun,
    chosen: Document,
    result: NightResult,
    census: DayCensus,
    plan: TrainingPlan,
    verdicts: Sequence[VettedSpan],
) -> Document:
    """Store the best challenger of every architecture as a version, with its lineage. `chosen` is from `choose`."""

    def stored(name: str) -> Document:
        origin = lineage(run, result, census, plan, verdicts, name)
        origin |= {"fence": chosen["fence"], "best": name == chosen["best"]}
        version = version_store.add_version(run.home, detector_store.read(run.challenger_directory(name)), origin)
        return {"version": version, "sha256": version_store.digest(run.home / version_store.DIRECTORY / version)}

    others = {name: stored(name) for name in chosen["others"]}
    return stored(chosen["best"]) | {"others": others}


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
    architecture = _architecture(name)
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


def _earlier_champions(home: Path, champion: str) -> list[str]:
    """The last champions before this one that a new one is compared with."""
    serving = champion_store.read_champion(home)
    baselines = serving.baselines if serving else ()
    stored = {version.version for version in version_store.versions(home) if "census" in version.lineage}
    return [version for version in baselines if version in stored and version != champion][-_BASELINES:]


def _golden_set(run: NightRun, held_out: Sequence[Moment]) -> SiteGoldenSet | GoldenSet:
    """The site's own days with faults imposed on them, or the shipped set if there is no job to impose them on."""
    remembered = [
        moment
        for directory in rehearsal_memory.days_before(run.memory, run.day.name)
        if (path := directory / "held_out.safetensors").exists()  # a memory of an older version has none
        for moment in read_moments(path)
    ]
    site = site_golden_set([*remembered, *held_out])
    if site.enough:
        return site
    shipped = run.context.golden()
    # Detectors of a site without job labels are calibrated on threads without jobs only.
    return shipped if any(moment.jobs for moment in held_out) else shipped.without_jobs()


def _architecture(challenger: str) -> str:
    return challenger.partition("/")[0]
