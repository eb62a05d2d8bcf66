"""Cut jobs out of a recording: labelled traces -> one excerpt per job, node and state (normal or anomalous)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.campaign.job_labels import FAILED
from clustertwin.telemetry.simulation.signature import IDLE

START_S, END_S = 5, 3  # length of a job's start and end
_SHORTEST_S = 20  # shorter excerpts contain too little about the autocorrelation


@dataclass(frozen=True, slots=True)
class JobExcerpt:
    """Threads of one job over some time. `starts` and `ends`: it includes the first and the last second of the job."""

    job_type: str
    anomaly: str
    ratios: NDArray[np.float32]  # (thread, second, channel); NaN where invalid
    starts: bool = True
    ends: bool = True

    def body(self) -> NDArray[np.float32]:
        """The ratios without the job's start and end; all ratios if too few remain."""
        first, last = START_S * self.starts, self.ratios.shape[1] - END_S * self.ends
        return self.ratios[:, first:last] if last - first >= 2 * START_S else self.ratios


def take_excerpts(traces: Iterable[Trace]) -> list[JobExcerpt]:
    """The excerpts of all jobs, and the periods in which a whole node had no job."""
    excerpts: list[JobExcerpt] = []
    for trace in traces:
        ratios = np.where(trace.valid[..., None], trace.values[..., :4], np.nan)
        busy = np.zeros(ratios.shape[1], np.bool_)
        for span in trace.spans:
            first = _second(trace, span.start_s, len(busy))
            last = _second(trace, math.floor(span.end_s), len(busy))  # the second of its end is not complete
            busy[max(0, first - END_S) : last + END_S] |= span.job_type != IDLE
            excerpts += _of_span(trace, span, ratios, first, last)
        excerpts += [JobExcerpt(IDLE, "", ratios[:, a:b], starts=False, ends=False) for a, b in _runs(~busy)]
    return [excerpt for excerpt in excerpts if excerpt.ratios.shape[1] >= _SHORTEST_S]


def _of_span(trace: Trace, span: JobSpan, ratios: NDArray[np.float32], first: int, last: int) -> list[JobExcerpt]:
    """A job before and after the onset of its anomaly. Idle time is taken from seconds without a job instead."""
    if span.job_type in (IDLE, FAILED) or last <= first:
        return []
    rows = [trace.cpus.index(cpu) for cpu in span.cpus if cpu in trace.cpus]
    job_ratios = ratios[rows]
    if not span.anomaly or span.onset_s is None:
        return [JobExcerpt(span.job_type, span.anomaly, job_ratios[:, first:last])]
    onset = min(max(_second(trace, span.onset_s, ratios.shape[1]), first), last)
    return [
        JobExcerpt(span.job_type, "", job_ratios[:, first:onset], starts=True, ends=False),
        JobExcerpt(span.job_type, span.anomaly, job_ratios[:, onset:last], starts=False, ends=True),
    ]


def _second(trace: Trace, at_s: float, seconds: int) -> int:
    """The index of the first full second at or after `at_s`."""
    return min(max(math.ceil((at_s - trace.start_s) / trace.interval_s), 0), seconds)


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The half-open ranges in which flags are set.

    >>> _runs(np.array([0, 1, 1, 0, 1], bool))
    [(1, 3), (4, 5)]
    """
    steps = np.flatnonzero(np.diff(np.r_[False, flags, False]))
    return [(int(a), int(b)) for a, b in zip(steps[::2], steps[1::2], strict=True)]
