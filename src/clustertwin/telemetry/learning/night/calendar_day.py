"""A calendar day: a date and a time zone -> its first second and the second after its last; what a day must hold.

A day follows the wall clock: when clocks change it has 23 or 25 hours. No second belongs to two days.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo

from clustertwin.core.errors import SettingsError


@dataclass(frozen=True, slots=True)
class DayLimits:
    """What a day needs to be learned from."""

    thread_hours: float = 1.0  # the least evidence: 36 windows of which no two share a second of a thread
    fewest_moments: int = 3  # of each role; half an hour of data has three
    coverage: float = 0.5  # part of the last night's nodes that must be present, and valid part of a node's seconds
    drift: float = 0.5  # part of the day that may alarm, once the site is known and if nobody called it the new normal


@dataclass(frozen=True, slots=True)
class Day:
    name: str  # 2026-11-15
    start_s: int
    end_s: int


def day_of(name: str, zone: tzinfo | None = None) -> Day:
    """The day with this name, by default in this machine's time zone."""
    try:
        day = date.fromisoformat(name)
        return Day(day.isoformat(), _midnight_s(day, zone), _midnight_s(day + timedelta(days=1), zone))
    except (ValueError, OverflowError) as error:  # the first and the last day of the calendar have no neighbour
        raise SettingsError(f"{name!r} is not a day; write it as 2026-11-15") from error


def yesterday(now_s: float, zone: tzinfo | None = None) -> Day:
    """The last day that has ended."""
    today = datetime.fromtimestamp(now_s, zone).date()
    return day_of((today - timedelta(days=1)).isoformat(), zone)


def _midnight_s(day: date, zone: tzinfo | None) -> int:
    # If a clock change skips midnight, `timestamp` returns the instant at which the skipped time would have been.
    return int(datetime.combine(day, time.min, zone).timestamp())
