"""Record beside the loop: traces -> a queue within a budget of memory -> one thread that writes them.

The recording of a cluster writes chunks of all nodes at each full hour, and a disk can be slow for minutes. The loop
must not wait for it. A trace for which there is no room is dropped, counted and named.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from clustertwin.core.errors import describe
from clustertwin.core.formatting import counted
from clustertwin.core.traces import Trace
from clustertwin.service.live.beside.joined_traces import joined

#: Traces that wait for the disk: about ten minutes of a hundred nodes with 64 threads.
MOST_WAITING_BYTES = 256 << 20
#: Traces are collected for this long and written together.
COLLECTED_S = 5.0
#: The disk is named if traces wait and none was written for this long.
STANDS_S = 60.0
#: A stopping service waits this long for the last traces.
ENDS_WITHIN_S = 6.0
#: The objects of a trace beside its arrays, and each of its spans.
_TRACE_BYTES, _SPAN_BYTES = 2000, 500
_log = logging.getLogger("uvicorn.error")


class TraceRecorder(Protocol):
    """Keeps traces, and never raises."""

    @property
    def lost(self) -> int:
        """How many traces were not kept."""
        ...

    @property
    def problem(self) -> str:
        """Why traces are not kept now; empty if they are."""
        ...

    def add(self, trace: Trace) -> None: ...

    def close(self) -> None: ...


class FlushedRecorder(TraceRecorder, Protocol):
    """A recorder whose `close` may be cut short once `flush` has returned."""

    def flush(self) -> None: ...


class RecordingThread:
    """A recorder that writes in a thread of its own. Only that thread uses the inner recorder."""

    def __init__(
        self,
        recorder: FlushedRecorder,
        most_bytes: int = MOST_WAITING_BYTES,
        collected_s: float = COLLECTED_S,
        ends_within_s: float = ENDS_WITHIN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recorder, self._most_bytes, self._clock = recorder, most_bytes, clock
        self._collected_s, self._ends_within_s = collected_s, ends_within_s
        self._changed = threading.Condition()
        self._waiting: deque[Trace] = deque()
        self._traces = self._bytes = 0  # that wait or are being written
        self._moved_s = 0.0  # when a trace was written last, or the first one began to wait
        self._dropped = self._dropped_now = 0  # traces in all, and since all were written the last time
        self._error = ""
        self._closing = self._is_flushed = False
        self._thread: threading.Thread | None = None

    def add(self, trace: Trace) -> None:
        size_bytes = _size_bytes(trace)
        with self._changed:
            if self._bytes + size_bytes > self._most_bytes:
                self._dropped += 1
                self._dropped_now += 1
                return
            if not self._traces:
                self._moved_s = self._clock()
            self._waiting.append(trace)
            self._traces += 1
            self._bytes += size_bytes
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
            self._thread.start()

    @property
    def lost(self) -> int:
        return self._dropped + self._recorder.lost

    @property
    def problem(self) -> str:
        """The loop asks for it every second, also while the disk hangs."""
        waiting = f"{counted(self._traces, 'trace')} of {self._bytes / 1e6:.0f} MB wait for the disk"
        if self._dropped_now:
            return f"recording: {counted(self._dropped_now, 'trace')} dropped, because {waiting}"
        stands_s = self._clock() - self._moved_s if self._traces else 0.0
        if stands_s > STANDS_S:
            return f"recording: nothing was written for {stands_s:.0f} s; {waiting}"
        return self._error or self._recorder.problem

    def close(self) -> None:
        """Write what waits, and log what could not be written in time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is None:
            self._recorder.close()
            return
        self._thread.join(self._ends_within_s)
        if self._thread.is_alive() and not self._is_flushed:
            lost = f"{counted(self._traces, 'trace')}, and " if self._traces else ""
            _log.warning("recording: not written in time and lost: %sup to the last minute of each node", lost)
        elif self.problem:
            _log.warning("%s", self.problem)

    def _run(self) -> None:
        while traces := self._collected():
            for trace in joined(traces):
                try:
                    self._recorder.add(trace)
                    self._error = ""
                except Exception as error:  # a thread that ended would fill the queue
                    self._error = f"recording failed: {describe(error)}"
                self._moved_s = self._clock()
            with self._changed:
                self._traces -= len(traces)
                self._bytes -= sum(map(_size_bytes, traces))
                if not self._traces:
                    self._dropped_now = 0
        self._recorder.flush()
        self._is_flushed = True
        self._recorder.close()

    def _collected(self) -> list[Trace]:
        """Traces to write together; none if all are written and the service stops."""
        together_bytes = self._most_bytes // 8  # joining copies them
        with self._changed:
            self._changed.wait_for(lambda: self._closing or bool(self._waiting))
            self._changed.wait_for(lambda: self._closing or self._bytes >= together_bytes, self._collected_s)
            traces: list[Trace] = []
            size_bytes = 0
            while self._waiting and size_bytes < together_bytes:
                traces.append(self._waiting.popleft())
                size_bytes += _size_bytes(traces[-1])
            return traces


def _size_bytes(trace: Trace) -> int:
    """About the memory that a trace takes."""
    arrays = [trace.values, trace.valid]
    arrays += [channels.values for channels in (trace.node_channels, trace.job_channels) if channels is not None]
    return _TRACE_BYTES + _SPAN_BYTES * len(trace.spans) + sum(array.nbytes for array in arrays)
