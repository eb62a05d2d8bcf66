"""The nightly cycle: a context and a day -> a result and, if a challenger wins the duel, a new champion.

`_run_steps` is the night as a list of its steps. Each step is stored in the journal when it is done, so that a killed
night continues where it stopped. Until `promote` replaces champion.json, the old champion stays in service.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from clustertwin.core.formatting import counted
from clustertwin.telemetry.learning.champions import (
    champion_store,
    learning_state,
    registry_spool,
    shadow,
    version_store,
)
from clustertwin.telemetry.learning.champions.fencing_lock import retrainer_lock
from clustertwin.telemetry.learning.duel.duel_decision import Contestant, DuelDecision
from clustertwin.telemetry.learning.duel.golden_set import GoldenSetResult
from clustertwin.telemetry.learning.night import halt_rules, night_steps, rehearsal_memory
from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.learning.night.day_census import DayCensus
from clustertwin.telemetry.learning.night.day_checks import DayCheck
from clustertwin.telemetry.learning.night.night_run import NightContext, NightResult, NightRun, nights_directory
from clustertwin.telemetry.learning.night.step_journal import StepJournal
from clustertwin.telemetry.learning.night.training_plan import TrainingPlan
from clustertwin.telemetry.learning.night.verdicts import VettedSpan, has_new_normal

_NEW_NORMAL = "part of this day was marked as the new normal, so alarms on it count as false"


def run_night(context: NightContext, day: Day) -> NightResult:
    """Run the night of one day, or continue it. Raises `Busy` if another retrainer is running."""
    with retrainer_lock(context.home) as fence:
        version_store.remove_drafts(context.home)
        journal = StepJournal(nights_directory(context.home) / day.name, context.crash_point)
        run = NightRun(context, day, fence, journal)
        result = run.read_result()
        if result is not None and result.final:
            result = replace(result, notes=[*result.notes, "this night had already ended"])
        else:
            if result is not None:
                journal.clear()  # skipped or halted: data, verdicts or the learning state may have changed
            result = _run_steps(run)
            run.write_result(result)
            context.crash_point("noted night")
        learning_state.record_outcome(context.home, day.name, result.outcome, result.because, context.clock())
        _remove_old_files(run)
        if context.open_registry is None:
            return result
        return replace(result, registry=registry_spool.open_and_sync(context.home, context.open_registry))


def _run_steps(run: NightRun) -> NightResult:
    champion, notes = champion_store.recover_champion(run.home, run.fence, run.context.clock())
    if stopped := _learning_is_off(run):
        return NightResult(run.day.name, "skipped", stopped, champion.version, notes=notes)
    verdicts = run.context.verdicts.between(run.day.start_s, run.day.end_s)
    late = halt_rules.late_confirmations(nights_directory(run.home), run.day, run.context.verdicts)
    if stopped := _halt(run, verdicts, late):
        return NightResult(run.day.name, "halted", stopped, champion.version, notes=notes)
    notes += rehearsal_memory.remove_days(run.memory, [confirmation.day for confirmation in late])

    in_shadow = shadow.begin(run.home).on
    once = run.journal.once
    begun = once("begin", lambda: night_steps.begin(run, champion.version, verdicts))
    champion = version_store.read_version(run.home, begun["champion"])
    verdicts = [VettedSpan(**row | {"cpus": tuple(row["cpus"])}) for row in begun["said"]]
    new_normal = has_new_normal(verdicts)
    notes += [_NEW_NORMAL] if new_normal else []
    expected = new_normal or in_shadow

    census = DayCensus(**once("gather", lambda: night_steps.gather(run, verdicts)))
    day_check = DayCheck(**once("check", lambda: night_steps.check(run, census, champion, expected)))
    notes += day_check.notes
    if day_check.skip:
        seconds = run.journal.seconds
        result = NightResult(run.day.name, "skipped", day_check.skip, champion.version, notes=notes, seconds=seconds)
        return _end_shadow(run, result, census) if in_shadow else result

    plan = TrainingPlan(**once("plan", lambda: night_steps.plan(run, champion)))
    notes += [f"{name} is not trained: {why}" for name, why in plan.without.items()]
    trained = once("train", lambda: night_steps.train(run, plan))
    notes += [f"{name} does not compete: {why}" for name, why in trained["failed"].items()]

    judged = once("judge", lambda: night_steps.judge(run, champion, trained["trained"], verdicts))
    notes += judged["notes"]
    contestants = [_contestant(row) for row in judged["contestants"]]
    baselines = [_contestant(row) for row in judged["baselines"]]
    fence = begun.get("fence", run.fence)  # an older release did not store it
    chosen = once("choose", lambda: night_steps.choose(run, contestants, baselines, fence))
    decision = DuelDecision(**chosen["choice"])
    result = NightResult(
        run.day.name,
        "kept",
        decision.because,
        champion=champion.version,
        before=champion.version,
        contestants=judged["contestants"],
        refused=decision.refused,
        notes=notes,
    )

    # Training takes long: a person may have frozen learning since the night began.
    if not run.journal.has("promote") and (stopped := _learning_is_off(run)):
        return NightResult(run.day.name, "skipped", stopped, champion.version, notes=notes)
    stored = {}
    if chosen["best"]:
        stored = once("enter", lambda: night_steps.enter(run, chosen, result, census, plan, verdicts))
    if decision.winner != "champion":
        why = f"night of {run.day.name}: {decision.winner}, {decision.because}"
        try:
            once("promote", lambda: night_steps.promote(run, stored["version"], chosen["fence"], why, new_normal))
            result = replace(result, outcome="promoted", champion=stored["version"])
        except champion_store.StaleFence as error:
            serving = champion_store.read_champion(run.home)
            result = replace(result, because=str(error), champion=serving.version if serving else "")
    if not decision.refused:  # a day that led to a rejected challenger must not be rehearsed on other nights
        once("remember", lambda: night_steps.remember(run))
    if in_shadow:
        winner = {contestant.name: contestant for contestant in contestants}[decision.winner]
        result = _end_shadow(run, result, census, winner.strange)
    result = replace(result, seconds=dict(run.journal.seconds))
    once("record", lambda: night_steps.record(run, result, census, plan, stored))
    return result


def _end_shadow(run: NightRun, result: NightResult, census: DayCensus, strange: float | None = None) -> NightResult:
    """Count what was watched, and end the shadow if the site is known now. `strange` is None if nothing was judged."""
    state = learning_state.add_shadow_evidence(run.home, run.day.name, census.thread_hours)
    hours = [thread_hours for day, thread_hours in state.shadow_hours.items() if day <= run.day.name]
    learned_here = "census" in version_store.find_version(run.home, result.champion).lineage
    reason = shadow.reason_to_end(run.settings.shadow, hours, 1.0 if strange is None else strange, learned_here)
    if not reason:
        seen = f"{sum(hours):.1f} thread-hours in {counted(len(hours), 'day')} watched"
        jobs = "no job was judged" if strange is None else f"{strange:.0%} of the jobs are strange"
        note = f"still in shadow: {seen}; this day {census.evidence}, {jobs}"
        return replace(result, notes=[*result.notes, note])
    learning_state.end_shadow(run.home, reason, run.context.clock())
    return replace(result, shadow_ended=reason, notes=[*result.notes, f"the shadow ends: {reason}"])


def _learning_is_off(run: NightRun) -> str:
    """Why learning is off; empty if it is on."""
    state = learning_state.read_state(run.home)
    return f"{state.status}: {state.reason}" if state.reason else ""


def _halt(run: NightRun, verdicts: Sequence[VettedSpan], late: Sequence[halt_rules.LateConfirmation]) -> str:
    """Halt learning if a confirmed anomaly requires it; the reason, or empty."""
    cleared = learning_state.read_state(run.home).cleared
    cause = halt_rules.halt_cause(run.day, verdicts, late, cleared) if run.settings.halt else None
    if cause is None:
        return ""
    day, reason = cause
    learning_state.halt(run.home, reason, day, run.context.clock())
    return reason


def _contestant(row: dict[str, Any]) -> Contestant:
    return Contestant(**row | {"detection": GoldenSetResult.from_json(row["detection"])})


def _remove_old_files(run: NightRun) -> None:
    """Remove moments and checkpoints of all ended nights, and the directories of all but the newest nights."""
    nights = sorted(nights_directory(run.home).iterdir())
    for directory in nights:
        if (directory / "night.json").exists():
            shutil.rmtree(directory / "moments", ignore_errors=True)
            for checkpoint in directory.glob("challengers/*/checkpoint"):
                shutil.rmtree(checkpoint, ignore_errors=True)
    # The registry still needs the report of a night whose record waits in the spool.
    waiting = {record.name for record in registry_spool.waiting(run.home)}
    old = {directory.name for directory in nights[: -run.settings.keep_nights]} - waiting
    _remove_old_versions(run, old)
    for name in old:
        shutil.rmtree(nights_directory(run.home) / name, ignore_errors=True)


def _remove_old_versions(run: NightRun, nights: Collection[str]) -> None:
    """Remove the versions of these nights that were never the best of their night and never served."""
    stored = version_store.versions(run.home) if nights else ()
    # A version of an older home is the best of its night.
    losers = [v for v in stored if v.lineage.get("night") in nights and not v.lineage.get("best", True)]
    for version in losers:
        with champion_store.unchanged(run.home) as serving:  # a person may promote one of them meanwhile
            if not serving or version.version not in (serving.version, serving.base, *serving.before):
                shutil.rmtree(version.directory, ignore_errors=True)
