"""Take recorded jobs out of a recording: traces with spans -> bouts, one per job and node and state."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.campaign.job_labels import FAILED
from clustertwin.telemetry.simulation.signature import IDLE

START_S, END_S = 5, 3  # how long a job starts and ends
_SHORTEST_S = 20  # less says nothing about time


@dataclass(frozen=True, slots=True)
class Bout:
    """Some threads of one job for some time; `starts` and `ends` say whether its first and last seconds are here."""

    job_type: str
    anomaly: str
    ratios: NDArray[np.float32]  # (thread, second, channel); NaN where nothing is known
    starts: bool = True
    ends: bool = True

    def body(self) -> NDArray[np.float32]:
        """Without the start and the end, if enough is left."""
        first, last = START_S * self.starts, self.ratios.shape[1] - END_S * self.ends
        return self.ratios[:, first:last] if last - first >= 2 * START_S else self.ratios


def take(traces: Iterable[Trace]) -> list[Bout]:
    """Every job's bouts, healthy and afflicted, and the seconds in which a whole node had no job."""
    bouts: list[Bout] = []
    for trace in traces:
        ratios = np.where(trace.valid[..., None], trace.values[..., :4], np.nan)
        busy = np.zeros(ratios.shape[1], np.bool_)
        for span in trace.spans:
            first = _second(trace, span.start_s, len(busy))
            last = _second(
                trace, math.floor(span.end_s), len(busy)
            )  # the second in which it ended is not wholly its own
            busy[max(0, first - END_S) : last + END_S] |= span.job_type != IDLE
            bouts += _of_span(trace, span, ratios, first, last)
        bouts += [Bout(IDLE, "", ratios[:, a:b], starts=False, ends=False) for a, b in _runs(~busy)]
    return [bout for bout in bouts if bout.ratios.shape[1] >= _SHORTEST_S]


def _of_span(trace: Trace, span: JobSpan, ratios: NDArray[np.float32], first: int, last: int) -> list[Bout]:
    """A job before and after its anomaly began; idle spans are found as seconds without a job."""
    if span.job_type in (IDLE, FAILED) or last <= first:
        return []
    rows = [trace.cpus.index(cpu) for cpu in span.cpus if cpu in trace.cpus]
    mine = ratios[rows]
    if not span.anomaly or span.onset_s is None:
        return [Bout(span.job_type, span.anomaly, mine[:, first:last])]
    onset = min(max(_second(trace, span.onset_s, ratios.shape[1]), first), last)
    return [
        Bout(span.job_type, "", mine[:, first:onset], starts=True, ends=False),
        Bout(span.job_type, span.anomaly, mine[:, onset:last], starts=False, ends=True),
    ]


def _second(trace: Trace, at_s: float, seconds: int) -> int:
    """The column of the first whole second from `at_s` on."""
    return min(max(math.ceil((at_s - trace.start_s) / trace.interval_s), 0), seconds)


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where flags are set, as half-open ranges.

    >>> _runs(np.array([0, 1, 1, 0, 1], bool))
    [(1, 3), (4, 5)]
    """
    steps = np.flatnonzero(np.diff(np.r_[False, flags, False]))
    return [(int(a), int(b)) for a, b in zip(steps[::2], steps[1::2], strict=True)]
