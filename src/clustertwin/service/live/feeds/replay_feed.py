"""A recording -> the traces that a live source would have given, at a multiple of real time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import floor

from clustertwin.core.traces import JobSpan, Trace, gather_node_channels
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.moments.moment import IDLE
from clustertwin.telemetry.recording import Recording


class ReplayFeed:
    """A recording, replayed at `pace` times real time. At the end its clock stops.

    On a machine that is too slow for the pace, its clock waits: at most `most_step_s` seconds are taken at once. So the
    detector looks at the recording in small steps.
    """

    patient = True

    def __init__(
        self,
        recording: Recording,
        pace: float,
        clock: Callable[[], float] = time.monotonic,
        most_step_s: float = float("inf"),
    ) -> None:
        self.source = f"replay of {recording.directory.name} at {pace:g}×"
        self.pace = pace
        self._recording, self._clock = recording, clock
        self._most_step_s = most_step_s
        self._begun_s: float | None = None
        self._until_s = recording.start_s

    def now_s(self) -> float:
        if self._begun_s is None:
            self._begun_s = self._clock()
        at_s = self._recording.start_s + (self._clock() - self._begun_s) * self.pace
        if at_s > self._until_s + self._most_step_s:
            self._begun_s += (at_s - self._until_s - self._most_step_s) / self.pace
            at_s = self._until_s + self._most_step_s
        return min(at_s, self._recording.end_s)

    @property
    def ended(self) -> bool:
        return self._until_s >= self._recording.end_s

    def take(self) -> list[Trace]:
        until_s = floor(self.now_s())
        if until_s <= self._until_s:
            return []
        recorded = [
            gather_node_channels(self._recording.trace(node, self._until_s, until_s)) for node in self._recording.nodes
        ]
        self._until_s = until_s
        return [replace(trace, spans=tuple(_live_spans(trace, until_s))) for trace in recorded]

    @property
    def faults(self) -> Faults:
        return Faults()

    @property
    def problems(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


def _live_spans(trace: Trace, until_s: int) -> Iterator[JobSpan]:
    """The spans that a live source would report: jobs that have started, without the labels of a campaign."""
    for span in trace.spans:
        if span.start_s < until_s and span.job_type != IDLE:
            yield replace(span, anomaly="", onset_s=None)
