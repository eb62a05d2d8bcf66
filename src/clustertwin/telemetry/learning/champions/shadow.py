"""Shadow: does this home know its site yet? home/learning.json and champion.json -> in shadow, or since when it is not.

On a site that the twin does not know, most alarms only say that the site differs from the machines it was trained on.
So it watches first: it shows what it would have raised, and notifies nobody. A night ends the shadow by itself when the
detector in service, shipped or learned here, finds few jobs strange on held-out time of the site. Where it keeps
finding them strange, the shadow ends once enough was watched: then what is usual is known by its own count, and a job
that is only new opens no event.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

from clustertwin.core.errors import TwinError
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.telemetry.learning.champions.learning_state import read_state, start_shadow

_CHAMPION = "champion.json"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ShadowRule:
    """What a night needs to end the shadow."""

    thread_hours: float = 2.0  # of the last day, if the detector is quiet on it: usable, and counted once
    strange: float = 0.1  # part of the jobs on held-out time that may be strange to it: they can be faults, or new
    known_hours: float = 24.0  # thread-hours of all days of the shadow, whatever the detector finds strange, …
    known_days: int = 2  # … and the fewest days that they are from


@dataclass(frozen=True, slots=True)
class Shadow:
    on: bool
    end_s: float  # infinity while it is on; 0: there was none
    because: str = ""  # why it ended

    def covers(self, seen_s: float) -> bool:
        """Was something that was last seen then only noted? What is still there after the end is raised."""
        return seen_s <= self.end_s


NO_SHADOW = Shadow(False, 0.0)


def read_shadow(home: Path) -> Shadow:
    """The shadow of a home. A home of an older version that has learned its site has none."""
    with suppress(TwinError):
        state = read_state(home)
        if state.shadow_ended_s is not None:
            ended = state.shadow_ended_s > 0
            return Shadow(not ended, state.shadow_ended_s if ended else inf, state.shadow_because)
    return NO_SHADOW if _has_champion_of_its_own(home) else Shadow(True, inf)


def begin(home: Path) -> Shadow:
    """The shadow of a home, which is stored from now on: the champion of the first night does not end it."""
    shadow = read_shadow(home)
    if shadow.on:
        start_shadow(home)
    return shadow


def reason_to_end(rule: ShadowRule, hours: Sequence[float], strange: float, learned_here: bool) -> str:
    """Why the shadow ends with this night; empty: it does not.

    `hours` are the thread-hours of each day of the shadow, the last day last. `strange` is the part of the jobs on
    held-out time of the last day that the detector in service finds strange; 1 if nothing was held out.
    """
    last, total = hours[-1] if hours else 0.0, sum(hours)
    if last >= rule.thread_hours and strange <= rule.strange:
        origin = "was learned here from" if learned_here else "is the shipped one, was tried on"
        return (
            f"the detector in service {origin} {last:.1f} thread-hours and finds "
            f"{strange:.0%} of the jobs on held-out time strange"
        )
    if total >= rule.known_hours and len(hours) >= rule.known_days:
        return f"{total:.1f} thread-hours of {len(hours)} days were watched, so what is usual here is known"
    return ""


def _has_champion_of_its_own(home: Path) -> bool:
    """Did a night or a person put a detector in service? Only a second champion has a predecessor."""
    try:
        return bool(parse_json(read_regular(home / _CHAMPION, _MOST_BYTES)).get("before"))
    except (OSError, ValueError, AttributeError):
        return False
