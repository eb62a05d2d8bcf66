"""A calendar day of the site: date and time zone -> its first second and the one after its last.

A day is what the wall clock says it is: where clocks change it has 23 or 25 hours, and no second belongs to two days.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo

from clustertwin.core.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Day:
    name: str  # 2026-11-15
    start_s: int
    end_s: int


def day_of(name: str, zone: tzinfo | None = None) -> Day:
    """The day of this name; without a zone, in the one of this machine."""
    try:
        day = date.fromisoformat(name)
    except ValueError as error:
        raise SettingsError(f"{name!r} is not a day; write it as 2026-11-15") from error
    return Day(day.isoformat(), _midnight_s(day, zone), _midnight_s(day + timedelta(days=1), zone))


def yesterday(now_s: float, zone: tzinfo | None = None) -> Day:
    """The last day that is over."""
    today = datetime.fromtimestamp(now_s, zone).date()
    return day_of((today - timedelta(days=1)).isoformat(), zone)


def _midnight_s(day: date, zone: tzinfo | None) -> int:
    # Where a clock change skips midnight, `timestamp` gives the instant that the skipped wall time would have been.
    return int(datetime.combine(day, time.min, zone).timestamp())
