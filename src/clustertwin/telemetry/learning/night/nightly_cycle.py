"""The nightly cycle: a home, a day, what is known of it and what people said -> a night, and perhaps a new champion.

gather -> check -> plan -> train -> judge -> choose -> enter -> promote -> remember; then the registry hears of it.
Until champion.json is replaced, the last act that matters, the old champion serves.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin import engine
from clustertwin.core import files
from clustertwin.core.errors import TwinError
from clustertwin.telemetry.detection import detector as detection
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.champions import champion_store, registry_spool
from clustertwin.telemetry.learning.champions import learning_state as learning
from clustertwin.telemetry.learning.champions.fencing_lock import only_retrainer
from clustertwin.telemetry.learning.duel.contestant import judge, on_normal
from clustertwin.telemetry.learning.duel.duel_figure import draw
from clustertwin.telemetry.learning.duel.golden_set import Detection, Golden, standard
from clustertwin.telemetry.learning.duel.verdict_of_duel import Choice, Contestant, Rule, choose
from clustertwin.telemetry.learning.night import challengers, learning_brake, rehearsal_memory
from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.learning.night.challengers import Order, Start, Training
from clustertwin.telemetry.learning.night.day_checks import Finding, Limits, check
from clustertwin.telemetry.learning.night.lineage import lineage_of, record_of
from clustertwin.telemetry.learning.night.night_data import Census, Material, gather, windows_of
from clustertwin.telemetry.learning.night.step_log import At, Night, Steps, nowhere, read_document
from clustertwin.telemetry.learning.night.verdicts import Verdicts, Vetted, has_changed
from clustertwin.telemetry.models import MODELS
from clustertwin.telemetry.models.model_store import read as read_model
from clustertwin.telemetry.moments.moment_files import read_moments, write_moments
from clustertwin.telemetry.recording.trace_archive import TraceArchive

ROLES = ("train", "validation", "held_out")
Progress = Callable[[str, int, int], None]  # step, done, of


@dataclass(frozen=True, slots=True)
class CycleSettings:
    architectures: tuple[str, ...] = tuple(MODELS)
    starts: tuple[Start, ...] = ("scratch", "warm", "recalibrated")
    budget_s: float = 480.0  # of wall time, for all training
    workers: int = 2
    moments: int = 150  # of the day
    replay_moments: int = 4  # of each remembered day and role
    replay_days: int = 10
    halt: bool = True  # by a confirmed anomaly
    training: Training = Training()
    alarms: detection.Settings = detection.Settings()
    rule: Rule = Rule()
    limits: Limits = Limits()
    keep_nights: int = 14  # whose challengers and documents stay on disk


@dataclass(frozen=True, slots=True)
class Site:
    """What a night needs to know of where it runs."""

    home: Path
    past: TraceArchive
    verdicts: Verdicts
    settings: CycleSettings = CycleSettings()
    book: Callable[[], registry_spool.Book] | None = None  # opened last: a registry that is down delays nothing
    golden: Callable[[], Golden] = standard
    clock: Callable[[], float] = time.time
    progress: Progress = lambda step, done, of: None
    at: At = nowhere
    command: str = field(default="")  # for the lineage


def run(site: Site, day: Day) -> Night:
    """Live through one night. `Busy` where another retrainer is at work."""
    with only_retrainer(site.home) as fence:
        champion_store.sweep(site.home)
        steps = Steps(site.home / "nights" / day.name, site.at)
        ended = steps.directory / "night.json"
        night = Night(**read_document(ended)) if ended.exists() else None
        if night is not None and night.outcome in ("promoted", "kept"):
            night = replace(night, notes=[*night.notes, "this night had already ended"])
        else:
            if night is not None:
                steps.clear()  # skipped or halted: much may have changed since
            night = _night(site, day, fence, steps)
            files.write(ended, json.dumps(asdict(night), indent=1).encode())
            site.at("noted night")
        learning.ended(site.home, night.day, night.outcome, night.because, site.clock())
        _tidy(site)
        return replace(night, registry=registry_spool.tell(site.home, site.book)) if site.book else night


def _night(site: Site, day: Day, fence: int, steps: Steps) -> Night:
    home, settings = site.home, site.settings
    serving, notes = _serving(site, fence)
    state = learning.read_state(home)
    if state.reason:
        return Night(day.name, "skipped", f"{state.word}: {state.reason}", serving.version, notes=notes)
    said = site.verdicts.between(day.start_s, day.end_s)
    too_soon = learning_brake.learned_too_soon(home / "nights", day, site.verdicts)
    if settings.halt and (pulled := learning_brake.pulled(day, said, too_soon, state.cleared)):
        by_day, why = pulled
        learning.halt(home, why, by_day, site.clock())
        return Night(day.name, "halted", why, serving.version, notes=notes)
    notes += rehearsal_memory.forget(home / "replay", [one.day for one in too_soon])

    # What the night began with; a repeated run goes on from it, whoever serves by then.
    began = steps.once("begin", lambda: _begin(serving, day, said))
    serving = champion_store.read_version(home, began["champion"])
    said = [Vetted(**row | {"cpus": tuple(row["cpus"])}) for row in began["said"]]
    changed = has_changed(said)
    notes += ["part of the day was called the new normal: alarms on it are no sight"] if changed else []
    census = Census(**steps.once("gather", lambda: _gather(site, day, said, steps)))
    finding = Finding(**steps.once("check", lambda: _check(site, census, serving, changed, steps)))
    notes += finding.notes
    if finding.skip:
        return Night(day.name, "skipped", finding.skip, serving.version, notes=notes, seconds=steps.seconds)
    plan = steps.once("plan", lambda: _plan(site, serving, day, steps))
    notes += [f"{name} is not trained: {why}" for name, why in plan["without"].items()]
    steps.once("train", lambda: _train(site, plan, day, steps))
    judged = steps.once("judge", lambda: _judge(site, serving, plan, steps))
    contestants = [_contestant(row) for row in judged["contestants"]]
    notes += judged["notes"]
    chosen = steps.once("choose", lambda: _choose(site, contestants, changed, fence))
    choice = Choice(**chosen["choice"])
    best = chosen["best"]
    night = Night(
        day.name, "kept", choice.because, serving.version, serving.version, judged["contestants"], choice.refused, notes
    )
    if best:
        lineage = lineage_of(night, census, plan, best, steps.directory, said, chosen["fence"], site.command)
        entered = steps.once("enter", lambda: _enter(site, steps, best, lineage))
        if choice.winner != "champion":
            why = f"night of {day.name}: {choice.winner}, {choice.because}"
            try:
                steps.once("promote", lambda: _promote(site, entered["version"], chosen["fence"], why, changed))
                night = replace(night, outcome="promoted", champion=entered["version"])
            except champion_store.Outranked as error:
                now = champion_store.read_champion(home)
                night = replace(night, because=str(error), champion=now.version if now else "")
    if not choice.refused:  # a day that made challengers blind is not to be learned from on other nights either
        steps.once("remember", lambda: _remember(site, day, steps))
    night = replace(night, seconds=dict(steps.seconds))
    steps.once("record", lambda: _record(site, night, census, plan, steps, best))
    return night


def _serving(site: Site, fence: int) -> tuple[Detector, list[str]]:
    """The champion, or what takes its place: the last that can be loaded, at last the bundled one."""
    home = site.home
    now = champion_store.read_champion(home)
    try:
        if now is not None:
            return champion_store.load(home, now), []
        reason = ""
    except TwinError as error:
        reason = str(error)
        try:
            champion_store.rollback(home, fence, site.clock())
            return champion_store.champion(home), [f"the champion could not be loaded ({reason}): rolled back"]
        except TwinError:
            (home / champion_store.FILE).unlink(missing_ok=True)
    first = champion_store.champion(home)  # the bundled one
    version = champion_store.enter(home, first, {"night": "", "why": "came with clustertwin"})
    champion_store.promote(home, version, fence, "came with clustertwin", site.clock())
    return first, [f"the champion could not be loaded ({reason}): the bundled one serves"] if reason else []


def _begin(serving: Detector, day: Day, said: list[Vetted]) -> dict[str, Any]:
    plain = [asdict(vetted) for vetted in said]
    return {"champion": serving.version, "start_s": day.start_s, "end_s": day.end_s, "said": plain}


def _gather(site: Site, day: Day, said: list[Vetted], steps: Steps) -> dict[str, Any]:
    def progress(done: int, of: int) -> None:
        site.progress("gather", done, of)

    material, census = gather(day, site.past, said, site.settings.moments, progress)
    for role in ROLES:
        write_moments(_file(steps, role), getattr(material, role))
    return asdict(census)


def _check(site: Site, census: Census, serving: Detector, changed: bool, steps: Steps) -> dict[str, Any]:
    site.progress("check", 0, 1)
    material = Material(*(read_moments(_file(steps, role)) for role in ROLES))
    try:
        alarming = on_normal(serving, [*material.validation, *material.held_out])[1]
    except TwinError:
        alarming = 0.0  # nothing to score; the count of windows says so
    last = champion_store.read_champion(site.home)
    lineage = champion_store.find(site.home, last.version).lineage if last else {}
    before = Census(**lineage["census"]) if "census" in lineage else None
    return asdict(check(census, material, alarming, before, changed, site.settings.limits))


def _plan(site: Site, serving: Detector, day: Day, steps: Steps) -> dict[str, Any]:
    """Who is trained, for how long and from where."""
    settings = site.settings
    windows = windows_of(read_moments(_file(steps, "train")))
    replayed = [path.name for path in rehearsal_memory.remembered(site.home / "replay", day.name)]
    sources = [site.home / champion_store.MODELS / serving.version, *_earlier(site, day)]
    names: list[tuple[str, Start]] = []
    starts: dict[str, str] = {}
    for architecture in settings.architectures:
        for start in (start for start in settings.starts if start != "recalibrated"):
            found = challengers.warm_from(architecture, sources) if start == "warm" else None
            if start == "scratch" or found is not None:
                names.append((architecture, start))
            if found is not None:
                starts[f"{architecture}/warm"] = str(found)
    speeds = {}
    for i, architecture in enumerate(dict(names)):
        site.progress("plan", i, len(dict(names)))
        speeds[architecture] = challengers.speed(architecture, windows)
    a_moment = len(windows) / max(len(np.unique(windows.start_s)), 1)
    count = round(len(windows) + a_moment * settings.replay_moments * len(replayed))
    epochs, without = challengers.plan(speeds, names, count, settings.budget_s * settings.workers, settings.training)
    if "recalibrated" in settings.starts:
        name = f"{serving.stored.name}/recalibrated"
        epochs[name], starts[name] = 0, str(sources[0])
    return {"epochs": epochs, "without": without, "starts": starts, "replayed": replayed, "windows_per_s": speeds}


def _train(site: Site, plan: dict[str, Any], day: Day, steps: Steps) -> dict[str, Any]:
    orders = [_order(site, name, plan, steps) for name in plan["epochs"]]
    done = 0

    def tell(index: int, name: str) -> None:
        nonlocal done
        done += 1
        site.at(f"trained {name}")
        site.progress("train", done, len(orders))

    site.progress("train", 0, len(orders))
    return {"trained": engine.each(challengers.train, orders, workers=site.settings.workers, done=tell)}


def _order(site: Site, name: str, plan: dict[str, Any], steps: Steps) -> Order:
    architecture = name.partition("/")[0]
    source = Path(plan["starts"][name]) if name in plan["starts"] else None
    stored = read_model(source) if source else None
    settings = challengers.settings_of(architecture, plan["epochs"][name], site.settings.training, stored)
    replayed = [site.home / "replay" / day for day in plan["replayed"]]
    files = {
        role: (_file(steps, role), *(path / f"{role}.safetensors" for path in replayed))
        for role in ("train", "validation")
    }
    return Order(
        name,
        settings,
        _challenger(steps, name),
        files["train"],
        files["validation"],
        source,
        site.settings.training.windows,
        site.settings.alarms,
    )


def _judge(site: Site, serving: Detector, plan: dict[str, Any], steps: Steps) -> dict[str, Any]:
    held_out = read_moments(_file(steps, "held_out"))
    golden = site.golden()
    if not any(moment.jobs for moment in held_out):
        golden = golden.without_jobs()  # what was calibrated on threads of no known job cannot judge those of jobs
    found = [judge("champion", serving, held_out, golden)]
    notes = []
    for i, name in enumerate(plan["epochs"]):
        site.progress("judge", i, len(plan["epochs"]))
        try:
            found.append(judge(name, detection.read(_challenger(steps, name)), held_out, golden))
        except TwinError as error:
            notes.append(f"{name} is out: {error}")  # a damaged challenger does not stop the others
    return {"contestants": [asdict(one) for one in found], "notes": notes}


def _choose(site: Site, contestants: list[Contestant], changed: bool, fence: int) -> dict[str, Any]:
    champion, others = contestants[0], contestants[1:]
    choice = choose(champion, others, site.settings.rule, _before(site.home, champion.detection.golden), changed)
    best = (
        choice.winner if choice.winner != champion.name else min(others, key=lambda c: c.error).name if others else ""
    )
    # The token of the decision, not of a later run that carries it out: a person who decided since outranks it.
    return {"choice": asdict(choice), "best": best, "fence": fence}


def _enter(site: Site, steps: Steps, best: str, lineage: dict[str, Any]) -> dict[str, Any]:
    version = champion_store.enter(site.home, detection.read(_challenger(steps, best)), lineage)
    return {"version": version, "sha256": champion_store.digest(site.home / champion_store.MODELS / version)}


def _promote(site: Site, version: str, fence: int, why: str, changed: bool) -> dict[str, Any]:
    return asdict(champion_store.promote(site.home, version, fence, why, site.clock(), anew=changed))


def _remember(site: Site, day: Day, steps: Steps) -> dict[str, Any]:
    settings = site.settings
    material = Material(*(read_moments(_file(steps, role)) for role in ROLES))
    rehearsal_memory.remember(site.home / "replay", day.name, material, settings.replay_moments, settings.replay_days)
    return {}


def _record(site: Site, night: Night, census: Census, plan: dict[str, Any], steps: Steps, best: str) -> dict[str, Any]:
    if site.book is not None:
        draw(night.contestants, steps.directory / "report" / "duel.png")
        files.write(steps.directory / "report" / "night.json", json.dumps(asdict(night), indent=1).encode())
        entered = read_document(steps.directory / "enter.json")["result"] if best else {}
        registry_spool.put(
            site.home,
            record_of(night, census, plan, asdict(site.settings), steps.directory / "report", entered, site.home),
        )
    return {}


def _tidy(site: Site) -> None:
    """The newest nights stay whole; of older ones the documents and weights go, of all the moments."""
    nights = sorted((site.home / "nights").iterdir())
    for directory in nights:
        if (directory / "night.json").exists():
            shutil.rmtree(directory / "moments", ignore_errors=True)
            for checkpoint in directory.glob("challengers/*/checkpoint"):
                shutil.rmtree(checkpoint, ignore_errors=True)
    waiting = {record.name for record in registry_spool.waiting(site.home)}
    for directory in nights[: -site.settings.keep_nights]:
        if directory.name not in waiting:
            shutil.rmtree(directory, ignore_errors=True)


def _earlier(site: Site, day: Day) -> list[Path]:
    """Challengers of earlier nights, newest first."""
    nights = [path for path in (site.home / "nights").iterdir() if path.name < day.name]
    return [found for path in sorted(nights, reverse=True) for found in sorted(path.glob("challengers/*"))]


def _before(home: Path, golden_sha256: str) -> list[Detection]:
    """What the champions saw of this golden set that the next one is measured by."""
    now = champion_store.read_champion(home)
    binding = now.binding if now else ()
    found = [
        v.lineage["detection"]
        for v in champion_store.versions(home)
        if v.version in binding and "detection" in v.lineage
    ]
    return [Detection.from_json(one) for one in found if one["golden"] == golden_sha256]


def _contestant(row: dict[str, Any]) -> Contestant:
    return Contestant(**row | {"detection": Detection(**row["detection"])})


def _file(steps: Steps, role: str) -> Path:
    return steps.directory / "moments" / f"{role}.safetensors"


def _challenger(steps: Steps, name: str) -> Path:
    return steps.directory / "challengers" / name.replace("/", "-")
