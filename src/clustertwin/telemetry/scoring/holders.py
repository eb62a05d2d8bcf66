"""Which job holds which thread of a node, told second by second: traces' spans -> the spans known at a time.

A live source says each second which jobs it sees, with spans that end now; a recording says beforehand when each
ends. Either way a span that reached the end of the node's newest second is taken to go on until a newer second
says otherwise, so that silence ends no job.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

from clustertwin.core.traces import JobSpan, Trace


class Holders:
    """The spans of one node. Spans that ended long ago are forgotten."""

    def __init__(self, remember_s: int) -> None:
        self.remember_s = remember_s
        self._spans: dict[tuple[str, tuple[int, ...], float], JobSpan] = {}
        self._open: set[tuple[str, tuple[int, ...], float]] = set()
        self._newest_s = -inf

    def push(self, trace: Trace) -> None:
        """Learn the spans of a trace; of several that tell of one job's end, the latest counts."""
        told = [span for span in trace.spans if span.node == trace.node]
        for span in told:
            key = (span.job, span.cpus, span.start_s)
            before = self._spans.get(key)
            if before is None or before.end_s < span.end_s:
                self._spans[key] = span
        if self._newest_s - self.remember_s <= trace.end_s < self._newest_s:
            return  # late; older still is a clock that was set back
        self._newest_s = trace.end_s
        # A sampler's second may end a little before the clock's: a job seen at 99.7 held the second up to 100.
        self._open = {
            (span.job, span.cpus, span.start_s) for span in told if span.start_s < trace.end_s <= ceil(span.end_s)
        }
        for key in [key for key, span in self._spans.items() if ceil(span.end_s) < trace.end_s - self.remember_s]:
            del self._spans[key]

    def at(self, end_s: int) -> list[JobSpan]:
        """The spans that had begun by `end_s`, in whole seconds at their ends; those that go on end at infinity."""
        return [
            replace(span, end_s=inf if key in self._open else ceil(span.end_s))
            for key, span in self._spans.items()
            if span.start_s < end_s
        ]
