"""Which job holds which thread of a node, told second by second: traces' spans -> each thread's job, and since when.

A live source says each second which jobs it sees, with spans that end now; a recording says beforehand when each
ends. Either way a span that reached the end of the node's newest second is taken to go on until a newer second
says otherwise, so that silence ends no job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import JobSpan, Trace

_Key = tuple[str, tuple[int, ...], float]


@dataclass(frozen=True, slots=True)
class Held:
    """One row a thread."""

    jobs: tuple[str, ...]
    job: NDArray[np.int32]  # (cpu,) index into jobs, -1: none
    since_s: NDArray[np.float64]  # (cpu,) when the job, or having none, began; -inf: before all that is known


class Holders:
    """The spans of one node. Spans that ended long ago are forgotten."""

    def __init__(self, remember_s: int) -> None:
        self.remember_s = remember_s
        self._spans: dict[_Key, JobSpan] = {}
        self._open: set[_Key] = set()
        self._newest_s = -inf
        self._last: tuple[tuple[int, ...], Held] | None = None  # the last answer, while nothing changes

    def push(self, trace: Trace) -> None:
        """Learn the spans of a trace; of several that tell of one job's end, the latest counts."""
        if not trace.spans and not self._spans:
            return
        told = [span for span in trace.spans if span.node == trace.node]
        keys = [(span.job, span.cpus, span.start_s) for span in told]
        for key, span in zip(keys, told, strict=True):
            before = self._spans.get(key)
            if before is None or before.end_s < span.end_s:
                self._spans[key] = span
        if self._newest_s - self.remember_s <= trace.end_s < self._newest_s:
            return  # late; older still is a clock that was set back
        self._newest_s = trace.end_s
        # A sampler's second may end a little before the clock's: a job seen at 99.7 held the second up to 100.
        open_ = {k for k, span in zip(keys, told, strict=True) if span.start_s < trace.end_s <= ceil(span.end_s)}
        gone = [key for key, span in self._spans.items() if ceil(span.end_s) < trace.end_s - self.remember_s]
        for key in gone:
            del self._spans[key]
        if open_ != self._open or gone:
            self._open, self._last = open_, None

    def at(self, end_s: int) -> list[JobSpan]:
        """The spans that had begun by `end_s`, in whole seconds at their ends; those that go on end at infinity."""
        return [
            replace(span, end_s=inf if key in self._open else ceil(span.end_s))
            for key, span in self._spans.items()
            if span.start_s < end_s
        ]

    def held(self, cpus: tuple[int, ...], end_s: int) -> Held:
        """Who holds these threads, in ascending order, at `end_s`."""
        if self._last is not None and self._last[0] == cpus and end_s >= self._newest_s:
            return self._last[1]
        jobs: dict[str, int] = {}
        job, since_s = np.full(len(cpus), -1, np.int32), np.full(len(cpus), -inf)
        for span in self.at(end_s):
            rows = np.flatnonzero(np.isin(cpus, span.cpus))
            holds = span.end_s >= end_s
            since_s[rows] = np.maximum(since_s[rows], span.start_s if holds else span.end_s)
            if holds:
                job[rows] = jobs.setdefault(span.job, len(jobs))
        held = Held(tuple(jobs), job, since_s)
        # What is to come may change the answer for a later second; what is past may not.
        if end_s >= self._newest_s and not any(span.start_s >= end_s for span in self._spans.values()):
            self._last = cpus, held
        return held
