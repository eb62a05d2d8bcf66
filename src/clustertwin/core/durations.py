"""Units of time, and durations as people write them: `90 min`, `1h 30min`, `2 d` -> seconds."""

from __future__ import annotations

import re

from clustertwin.core.errors import SettingsError

HOUR_S = 3600
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
UNITS_S = {"s": 1, "m": 60, "min": 60, "h": HOUR_S, "d": DAY_S, "w": WEEK_S}
LONGEST_S = 10 * 365.0 * DAY_S
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def parse_duration(text: str) -> float:
    """A sum of numbers with units. A number without a unit is refused, because its unit is not known.

    >>> parse_duration("1h 30min")
    5400.0
    """
    total_s, at = 0.0, 0
    while at < len(text) and (part := _PART.match(text, at)) and part[2] in UNITS_S:
        total_s += float(part[1]) * UNITS_S[part[2]]
        at = part.end()
    if at < len(text) or not 0 < total_s < LONGEST_S:
        raise SettingsError(f"{text!r} is not a duration; write 30 min, 2 h, 3 d or 1 w, up to ten years")
    return total_s
