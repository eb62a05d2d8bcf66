"""What a day needs to be learned from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DayLimits:
    thread_hours: float = 1.0  # the least evidence: 36 windows of which no two share a second of a thread
    fewest_moments: int = 3  # of each role; half an hour of data has three
    coverage: float = 0.5  # part of the last night's nodes that must be present, and valid part of a node's seconds
    drift: float = 0.5  # part of the day that may alarm, once the site is known and if nobody called it the new normal
