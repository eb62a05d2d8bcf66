"""Record the traces of the loop: traces of any number of nodes -> HOME/recording, resumed after each restart."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from clustertwin.core.errors import describe
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.live.clock_guard import BEHIND_S, ClockGuard
from clustertwin.telemetry.recording import Recorder, RecordingSettings
from clustertwin.telemetry.recording.capture import JobLabels
from clustertwin.telemetry.recording.continuation import continue_recording, set_aside
from clustertwin.telemetry.recording.trace_archive import between

#: A node without a trace for this long is at rest: its seconds are in a chunk, and it takes no memory.
SILENT_S = 600.0
#: Silent nodes are looked for this often, and nodes without any seconds …
_LOOK_S, _DROP_S = 60.0, 3600.0
#: Labels that wait for room on the disk. Beyond it, the oldest are lost.
MOST_UNWRITTEN = 10_000


def since_boot_s() -> float:
    """A clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LiveRecorder:
    """Never raises. A trace that cannot be recorded is counted in `lost`, and `problem` has the reason."""

    def __init__(
        self,
        directory: Path,
        keep_s: int | None,
        keep_bytes: int | None = None,
        clock: Callable[[], float] = since_boot_s,
        flush_s: int = RecordingSettings().flush_s,
    ) -> None:
        self.directory = directory
        self.lost = 0  # traces
        self.problem = ""
        self._settings = RecordingSettings(keep_s=keep_s, keep_bytes=keep_bytes, flush_s=flush_s)
        self._clock = clock
        self._recorder: Recorder | None = None
        self._guard = ClockGuard()
        self._jobs, self._unwritten = JobLabels(), list[JobSpan]()
        self._note = ""  # an older recording was moved aside
        self._reasons: dict[str, str] = {}  # node -> why its last trace was not recorded
        self._heard_s: dict[str, float] = {}  # the nodes that are not at rest
        self._looked_s = self._dropped_s = -math.inf

    def add(self, trace: Trace) -> None:
        now_s = self._clock()
        self._heard_s[trace.node] = now_s
        reason = self._attempt(lambda: self._add(trace, now_s))
        self.lost += bool(reason)
        self._settle(trace.node, reason)
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            self._rest_silent(now_s)

    def _attempt(self, work: Callable[[], str]) -> str:
        """Why some work could not be done; empty if it was done."""
        try:
            return work()
        except Exception as error:
            return f"recording failed: {describe(error)}"

    def _settle(self, node: str, reason: str) -> None:
        """Note whether the last trace of a node was recorded, and name the first node whose trace was not."""
        if reason:
            self._reasons[node] = reason
        else:
            self._reasons.pop(node, None)
        first = next(iter(self._reasons.values()), "")
        more = f"; {len(self._reasons) - 1} more nodes are not recorded either" if len(self._reasons) > 1 else ""
        self.problem = f"{first}{more}" if first else self._note

    def _add(self, trace: Trace, now_s: float) -> str:
        try:
            if not self._guard.has_begun:
                newest_s = (self._recorder or self._open(trace)).newest_s
                self._guard.begin(max(trace.end_s, newest_s or 0), now_s)
            if reason := self._guard.reason(trace.node, trace.end_s, now_s):
                return reason
            self._append(trace)
        except Exception:
            if self._recorder is None or not self._recorder.is_lost(trace.node):
                raise
            self._begin_again(trace)
        self._label(self._jobs.changed(trace))
        return ""

    def _append(self, trace: Trace) -> None:
        recorder = self._recorder or self._open(trace)
        if recorder.newest_s is not None and trace.end_s < recorder.newest_s - BEHIND_S:
            recorder.close()
            aside = set_aside(self.directory)
            self._recorder, self._jobs, self._unwritten = None, JobLabels(), []
            recorder = self._open(trace)
            self._note = f"{self.directory} has seconds after now: it is now {aside}, and a new recording has begun"
        known = recorder.description.nodes.get(trace.node)
        if known is None:
            recorder.admit(trace.node, trace.cpus)
        elif known != trace.cpus:
            recorder.widen(trace.node, trace.cpus)
        next_s = recorder.next_s(trace.node)
        if next_s is not None and trace.start_s < next_s < trace.end_s:
            trace = between(trace, next_s, trace.end_s)  # after a small step back of a clock
        recorder.append(trace)

    def _begin_again(self, trace: Trace) -> None:
        """Somebody has deleted the recording, or a part of it: begin a new one, with this trace first."""
        if self._recorder is not None:
            self._attempt(self._flush)  # if a part was deleted, the other nodes keep their last seconds
            self._recorder.abandon()
        self._recorder, self._jobs, self._unwritten = None, JobLabels(), []
        self._append(trace)
        deleted = f"{self.directory} was deleted while the service ran: a new recording has begun"
        self._note = "; ".join(filter(None, [deleted, self._note]))

    def _rest_silent(self, now_s: float) -> None:
        """Free what is kept for nodes that are silent, and once an hour remove those whose seconds have expired."""
        for node in [node for node, heard_s in self._heard_s.items() if now_s - heard_s > SILENT_S]:
            reason = self._attempt(partial(self._rest, node))
            self._settle(node, reason)
            if not reason:
                del self._heard_s[node]
                self._guard.forget(node)
        if now_s - self._dropped_s >= _DROP_S:
            self._dropped_s = now_s
            self._attempt(self._drop_empty)

    def _rest(self, node: str) -> str:
        if self._recorder is not None:
            self._recorder.rest(node)
            self._label(self._jobs.ended_on(node))
        return ""

    def _drop_empty(self) -> str:
        if self._recorder is not None:
            self._recorder.drop_empty()
        return ""

    def flush(self) -> None:
        """Write what is only in memory, so that a kill of the process loses nothing. That is quick."""
        self.problem = self._attempt(self._flush) or self.problem

    def close(self) -> None:
        """Write the chunks of all nodes, which takes seconds for a cluster. The next start can do it too."""
        self.flush()
        self.problem = self._attempt(self._close) or self.problem

    def _flush(self) -> str:
        if self._recorder is not None:
            self._recorder.flush(sync=False)
            self._label(self._jobs.ended())
        return ""

    def _close(self) -> str:
        if self._recorder is not None:
            self._recorder.close()
        return ""

    def _label(self, labels: list[JobSpan]) -> None:
        """Write labels, and those that could not be written before: a job without an end would seem to run on."""
        self._unwritten = [*self._unwritten, *labels][-MOST_UNWRITTEN:]
        if self._recorder is not None:
            self._recorder.label(*self._unwritten)
            self._unwritten = []

    def _open(self, trace: Trace) -> Recorder:
        self._recorder, self._note = continue_recording(self.directory, trace, self._settings)
        return self._recorder
