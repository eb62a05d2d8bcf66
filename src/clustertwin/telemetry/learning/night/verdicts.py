"""What people said about a day: the port through which the nightly cycle reads verdicts and maintenance windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.moments.moment import Moment

Verdict = Literal["confirmed", "dismissed", "new-normal", "maintenance"]
#: Verdicts after which an event needs nobody's attention, although its threads may still be above the threshold.
SETTLED = ("dismissed", "new-normal")


@dataclass(frozen=True, slots=True)
class VettedSpan:
    """A person's verdict on some threads of a node for some time."""

    node: str  # a name; of maintenance it can be a pattern such as `n0*`
    cpus: tuple[int, ...]  # empty: all threads
    start_s: float
    end_s: float
    verdict: Verdict

    def covers(self, node: str) -> bool:
        # The node of an event is always a name, even if it looks like a pattern: [::1]:9752
        return node == self.node or (self.verdict == "maintenance" and fnmatchcase(node, self.node))


class VerdictSource(Protocol):
    """Returns every verdict and maintenance window that overlaps the time from `start_s` to `end_s`."""

    def between(self, start_s: float, end_s: float) -> list[VettedSpan]: ...


@dataclass(frozen=True, slots=True)
class FixedVerdicts:
    """Verdicts in memory, from a simulation or a test."""

    spans: Sequence[VettedSpan] = ()

    def between(self, start_s: float, end_s: float) -> list[VettedSpan]:
        return [span for span in self.spans if span.start_s < end_s and span.end_s > start_s]


def called_normal(moment: Moment, verdicts: Sequence[VettedSpan]) -> NDArray[np.bool_]:
    """(thread,) did a person dismiss an event of this thread within this moment, or mark it as the new normal?"""
    rows = np.zeros(len(moment), np.bool_)
    start_s = moment.end_s - moment.values.shape[1]
    for span in verdicts:
        if span.verdict not in SETTLED or span.start_s >= moment.end_s or span.end_s <= start_s:
            continue
        for number, node in enumerate(moment.nodes):
            if span.covers(node):
                rows |= (moment.node == number) & (np.isin(moment.cpu, span.cpus) if span.cpus else True)
    return rows


def has_new_normal(verdicts: Sequence[VettedSpan]) -> bool:
    """Did a person mark part of the time as the new normal?"""
    return any(span.verdict == "new-normal" for span in verdicts)


def confirmed(verdicts: Sequence[VettedSpan]) -> tuple[VettedSpan, ...]:
    return tuple(span for span in verdicts if span.verdict == "confirmed")
