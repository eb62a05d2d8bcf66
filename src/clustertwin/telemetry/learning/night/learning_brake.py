"""The brake: what people confirmed of a day, and of days that were learned from too soon -> why tonight nothing is.

An anomaly is often confirmed the morning after its night: by then the champion may know it, and the memory of days
does. The next night halts for it all the same, and what is remembered of that day is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.learning.night.step_log import read_document
from clustertwin.telemetry.learning.night.verdicts import Verdicts, Vetted

_LOOK_BACK = 7  # nights; who confirms later than that may still roll back


@dataclass(frozen=True, slots=True)
class TooSoon:
    """A day that was learned from, or is remembered, and what was confirmed of it since."""

    day: str
    promoted: bool
    confirmed: tuple[Vetted, ...]


def confirmed(said: Sequence[Vetted]) -> tuple[Vetted, ...]:
    return tuple(vetted for vetted in said if vetted.verdict == "confirmed")


def learned_too_soon(nights: Path, day: Day, verdicts: Verdicts) -> list[TooSoon]:
    """Of the nights before this day's, oldest first."""
    found = []
    for directory in sorted(path for path in nights.glob("*") if path.name < day.name)[-_LOOK_BACK:]:
        if not ((directory / "night.json").exists() and (directory / "begin.json").exists()):
            continue
        began = read_document(directory / "begin.json")["result"]
        known = [row for row in began["said"] if row["verdict"] == "confirmed"]
        now = confirmed(verdicts.between(began["start_s"], began["end_s"]))
        if late := tuple(vetted for vetted in now if not any(_same(vetted, row) for row in known)):
            promoted = read_document(directory / "night.json")["outcome"] == "promoted"
            found.append(TooSoon(directory.name, promoted, late))
    return found


def pulled(
    day: Day, said: Sequence[Vetted], too_soon: Sequence[TooSoon], cleared: Collection[str]
) -> tuple[str, str] | None:
    """The day that pulls the brake and why; None: nothing does, or a person has let it go for these days."""
    if day.name not in cleared and (mine := confirmed(said)):
        why = f"an anomaly was confirmed on {day.name}: {_places(mine)}; `twin learn resume` goes on without it"
        return day.name, why
    for one in too_soon:
        if one.promoted and one.day not in cleared:
            what = f"an anomaly of {one.day} was confirmed after its night had learned from it"
            then = "`twin model rollback` takes that night back, `twin learn resume` goes on"
            return one.day, f"{what}: {_places(one.confirmed)}; {then}"
    return None


def _same(vetted: Vetted, row: dict[str, float | str]) -> bool:
    """An event that went on after it was confirmed is still that event."""
    overlaps = float(row["start_s"]) < vetted.end_s and float(row["end_s"]) > vetted.start_s
    return row["node"] == vetted.node and overlaps


def _places(some: Sequence[Vetted]) -> str:
    nodes = sorted({vetted.node for vetted in some})
    return ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more nodes" if len(nodes) > 3 else "")
