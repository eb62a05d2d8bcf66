"""What the number of an event means: event, threshold of its detector -> a name and an explanation in words.

A score counts normal windows: it is minus the logarithm of their share above it. The strength of a finding is on the
same scale, where the threshold is its limit, but it counts no windows.
"""

from __future__ import annotations

from typing import NamedTuple

from clustertwin.core import formatting
from clustertwin.service.live.snapshot import Snapshot
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.questions.finding import MAX_STRENGTH

_SURE = 6  # scores were calibrated on at most a million windows
#: Findings that hold or do not hold: their strength does not say how large they are.
_YES_OR_NO = {
    ("harm", "out-of-memory"): "the kernel killed a task of the job",
    ("harm", "misbound"): "tasks of the job wait for a CPU while another of its CPUs is free",
    ("harm", "leak"): "the memory runs out within an hour",
    ("change", "spinning"): "two looks at its processes show that it hangs",
}
_LIMITS = {
    "harm": "the limit that no healthy job exceeds for minutes",
    "change": "the smallest change that opens an event",
}


class ScoreMeaning(NamedTuple):
    name: str
    text: str


def score_meaning(event: Event, threshold: float | None) -> ScoreMeaning:
    """`threshold` is that of the event's own detector; None: not known any more."""
    if not event.by_finding:
        windows = f"one of {10**event.score:,.0f}" if event.score <= _SURE else "fewer than one of a million"
        return ScoreMeaning("score", f"a normal thread reaches this score in {windows} windows")
    if certain := _YES_OR_NO.get((event.question, event.cause)):
        return ScoreMeaning("strength", f"fixed, because {certain}")
    limit = _LIMITS.get(event.question, "its limit")
    if not threshold:
        return ScoreMeaning("strength", f"how far it is beyond {limit}")
    times = f"{'at least ' if event.score >= MAX_STRENGTH else ''}{formatting.number(event.score / threshold)} times"
    return ScoreMeaning("strength", f"{times} {limit}")


def threshold_of(event: Event, snapshot: Snapshot) -> float | None:
    """The threshold of the detector that the event came from, while it is in service."""
    model = snapshot.model
    return model.threshold if model is not None and model.version == event.model else None
