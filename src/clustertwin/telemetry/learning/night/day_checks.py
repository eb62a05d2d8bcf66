"""Check whether a day is fit to learn from: its census, the last one, the champion's alarms -> a reason to skip it."""

from __future__ import annotations

from dataclasses import dataclass

from clustertwin.core.formatting import listed
from clustertwin.telemetry.learning.night.calendar_day import DayLimits
from clustertwin.telemetry.learning.night.day_census import DayCensus
from clustertwin.telemetry.learning.night.day_sampling import DaySplit


@dataclass(frozen=True, slots=True)
class DayCheck:
    skip: str  # why the night is skipped; empty: it is not
    notes: tuple[str, ...] = ()


def check_day(
    census: DayCensus,
    split: DaySplit,
    alarming: float,
    last: DayCensus | None,
    expected: bool,
    limits: DayLimits = DayLimits(),
) -> DayCheck:
    """`alarming` is the part of the day's windows on which the champion alarms; `last` is the champion's own census.

    `expected` says that such alarms are a reason to learn: the site is in shadow, or a person marked part of the day as
    the new normal.
    """
    notes = [f"{node}: only {part:.0%} of its seconds are valid" for node, part in census.seen.items() if part < 0.5]
    skip = (
        _missing_data(census, split, limits)
        or (_missing_nodes(census, last, limits, notes) if last else "")
        or (_drift(alarming, limits) if not expected else "")
    )
    return DayCheck(skip, tuple(notes))


def _missing_data(census: DayCensus, split: DaySplit, limits: DayLimits) -> str:
    if not census.seen:
        return "the day has no samples"
    if not _covered(census, limits):
        return "no node has enough valid seconds"
    if census.thread_hours < limits.thread_hours:
        return f"{census.evidence}; at least {limits.thread_hours:g} thread-hours are needed"
    fewest = min(len(split.train), len(split.validation), len(split.held_out))
    if fewest < limits.fewest_moments:
        return f"a role has only {fewest} moments; at least {limits.fewest_moments} are needed"
    return ""


def _missing_nodes(census: DayCensus, last: DayCensus, limits: DayLimits, notes: list[str]) -> str:
    """Compare with the last census; smaller differences become notes."""
    missing = sorted(set(last.seen) - _covered(census, limits))
    if len(last.seen) - len(missing) < limits.coverage * len(last.seen):
        return f"{len(missing)} of {len(last.seen)} nodes are missing: {listed(missing, 5)}"
    if missing:
        notes.append(f"nodes missing since the last night: {listed(missing, 5)}")
    total = max(sum(last.job_types.values()), 1)
    gone = [name for name, count in last.job_types.items() if count > 0.1 * total and name not in census.job_types]
    if gone:
        notes.append(f"common job types that did not run: {listed(gone, 5)}")
    return ""


def _drift(alarming: float, limits: DayLimits) -> str:
    if alarming <= limits.drift:
        return ""
    return (
        f"the champion alarms on {alarming:.0%} of the day; the limit is {limits.drift:.0%}. "
        "Mark the events as new normal, or confirm them"
    )


def _covered(census: DayCensus, limits: DayLimits) -> set[str]:
    return {node for node, part in census.seen.items() if part >= limits.coverage}
