"""Which job holds which thread of one node: the job spans of its traces -> the job of each thread, and since when.

A live source reports each second which jobs it sees, with spans that end now. A recording knows in advance when each
span ends. In both cases a span that reaches the end of the node's newest second counts as running until a newer second
says otherwise, so a missing sample does not end a job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, inf, isinf

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import JobSpan, Trace

#: More spans than a node with 512 jobs has in five minutes, even if each job lasts a minute.
MOST_SPANS = 4096
#: Threads of all spans of a node together. Beyond it, those that ended first are dropped.
MOST_SPAN_THREADS = 1 << 18

_Key = tuple[str, tuple[int, ...], float]


@dataclass(frozen=True, slots=True)
class ThreadJobs:
    """The job of each thread of a node at one second."""

    jobs: tuple[str, ...]
    job: NDArray[np.int32]  # (cpu,) index into jobs, -1: none
    since_s: NDArray[np.float64]  # (cpu,) when the job, or the time without one, began; -inf: before the first span


class NodeJobs:
    """The job spans of one node. A span is dropped when it ended more than `remember_s` before the newest second."""

    def __init__(self, remember_s: int) -> None:
        self.remember_s = remember_s
        self._spans: dict[_Key, JobSpan] = {}
        self._running: set[_Key] = set()
        self._newest_s = -inf
        self._cached: tuple[tuple[int, ...], ThreadJobs] | None = None  # the last result, until a job starts or ends

    def push(self, trace: Trace) -> None:
        """Add the spans of a trace. If several report one job, the one with the latest end counts."""
        if not trace.spans and not self._spans:
            return
        reported = [span for span in trace.spans if span.node == trace.node]
        keys = [(span.job, span.cpus, span.start_s) for span in reported]
        for key, span in zip(keys, reported, strict=True):
            before = self._spans.get(key)
            if before is None or before.end_s < span.end_s:
                self._spans[key] = span
        if self._newest_s - self.remember_s <= trace.end_s < self._newest_s:
            # A late trace; one that is older still means that the clock was set back.
            self._cached = None if self._drop_surplus(self._running) else self._cached
            return
        self._newest_s = trace.end_s
        # A sampler's second can end a little before the clock's: a job seen at 99.7 held the second up to 100.
        running = {k for k, span in zip(keys, reported, strict=True) if span.start_s < trace.end_s < span.end_s + 1}
        expired = [key for key, span in self._spans.items() if span.end_s + 1 <= trace.end_s - self.remember_s]
        for key in expired:
            del self._spans[key]
        expired += self._drop_surplus(running)
        if running != self._running or expired:
            self._running, self._cached = running, None

    def _drop_surplus(self, running: set[_Key]) -> list[_Key]:
        """Drop the spans over a limit, those that ended first; the keys of the dropped ones."""
        threads = sum(len(cpus) for _, cpus, _ in self._spans)
        if len(self._spans) <= MOST_SPANS and threads <= MOST_SPAN_THREADS:
            return []
        dropped: list[_Key] = []
        left = len(self._spans)
        for key in sorted(self._spans, key=lambda key: (key in running, self._spans[key].end_s)):
            if left <= MOST_SPANS and threads <= MOST_SPAN_THREADS:
                break
            left, threads = left - 1, threads - len(key[1])
            dropped.append(key)
            del self._spans[key]
        return dropped

    def spans_at(self, end_s: int) -> list[JobSpan]:
        """The spans that began before `end_s`, with ends in whole seconds; a running span ends at infinity."""
        return [
            replace(span, end_s=inf if key in self._running or isinf(span.end_s) else ceil(span.end_s))
            for key, span in self._spans.items()
            if span.start_s < end_s
        ]

    def jobs_at(self, cpus: tuple[int, ...], end_s: int) -> ThreadJobs:
        """The job of each of these threads at `end_s`; `cpus` ascend."""
        if self._cached is not None and self._cached[0] == cpus and end_s >= self._newest_s:
            return self._cached[1]
        spans = self.spans_at(end_s)
        runs = np.array([span.end_s >= end_s for span in spans], np.bool_)  # (span,)
        at_s = np.array([span.start_s if run else span.end_s for span, run in zip(spans, runs, strict=True)])
        jobs: dict[str, int] = {}
        number = [jobs.setdefault(span.job, len(jobs)) if run else -1 for span, run in zip(spans, runs, strict=True)]
        row, of = _rows(cpus, spans)
        job, since_s = np.full(len(cpus), -1, np.int32), np.full(len(cpus), -inf)
        np.maximum.at(since_s, row, at_s[of])
        job[row[runs[of]]] = np.array(number, np.int32)[of[runs[of]]]
        result = ThreadJobs(tuple(jobs), job, since_s)
        # A span that has not begun yet changes the result at a later second, so the result is not cached.
        if end_s >= self._newest_s and not any(span.start_s >= end_s for span in self._spans.values()):
            self._cached = cpus, result
        return result


def _rows(cpus: tuple[int, ...], spans: list[JobSpan]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each thread of each span is among `cpus`, and the number of its span.

    All spans at once: a node whose jobs change every second has thousands of them.
    """
    flat = np.fromiter(chain.from_iterable(span.cpus for span in spans), np.int64)
    of = np.repeat(np.arange(len(spans)), [len(span.cpus) for span in spans])
    known = np.array((*cpus, np.iinfo(np.int64).max))
    row = np.searchsorted(known[:-1], flat)
    found = known[row] == flat
    return row[found], of[found]
