"""When a confirmed anomaly halts learning: verdicts on the day, and on earlier days -> the day and the reason.

People often confirm an anomaly on the morning after the night that learned from it. By then the champion and the
rehearsal memory can contain it. Such a late confirmation halts the next night, and removes the day from the memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustertwin.core.formatting import listed
from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.learning.night.step_journal import read_document
from clustertwin.telemetry.learning.night.verdicts import VerdictSource, VettedSpan, confirmed

_LOOK_BACK = 7  # nights; a champion of an older night can still be rolled back by hand


@dataclass(frozen=True, slots=True)
class LateConfirmation:
    """Anomalies of a day that were confirmed after its night."""

    day: str
    promoted: bool  # did that night promote a challenger?
    spans: tuple[VettedSpan, ...]


def late_confirmations(nights: Path, day: Day, verdicts: VerdictSource) -> list[LateConfirmation]:
    """Late confirmations of the nights before this day's, oldest first."""
    late = []
    for directory in sorted(path for path in nights.glob("*") if path.name < day.name)[-_LOOK_BACK:]:
        if not ((directory / "night.json").exists() and (directory / "begin.json").exists()):
            continue
        begun = read_document(directory / "begin.json")["result"]
        known = [row for row in begun["said"] if row["verdict"] == "confirmed"]
        spans = confirmed(verdicts.between(begun["start_s"], begun["end_s"]))
        if new := tuple(span for span in spans if not any(_same_event(span, row) for row in known)):
            promoted = read_document(directory / "night.json")["outcome"] == "promoted"
            late.append(LateConfirmation(directory.name, promoted, new))
    return late


def halt_cause(
    day: Day, verdicts: Sequence[VettedSpan], late: Sequence[LateConfirmation], cleared: Collection[str]
) -> tuple[str, str] | None:
    """The day that halts learning, and the reason; None if nothing does, or if a person resumed after these days."""
    if day.name not in cleared and (spans := confirmed(verdicts)):
        reason = f"an anomaly was confirmed on {day.name}: {_nodes(spans)}; `twin learn resume` continues without it"
        return day.name, reason
    for confirmation in late:
        if confirmation.promoted and confirmation.day not in cleared:
            what = f"an anomaly was confirmed on {confirmation.day} after that day's night had learned from it"
            advice = "`twin model rollback` restores the previous champion, `twin learn resume` continues"
            return confirmation.day, f"{what}: {_nodes(confirmation.spans)}; {advice}"
    return None


def _same_event(span: VettedSpan, row: dict[str, float | str]) -> bool:
    """An event that continued after it was confirmed is still the same event."""
    overlaps = float(row["start_s"]) < span.end_s and float(row["end_s"]) > span.start_s
    return row["node"] == span.node and overlaps


def _nodes(spans: Sequence[VettedSpan]) -> str:
    return listed(sorted({span.node for span in spans}), 3, " nodes")
