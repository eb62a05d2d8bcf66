"""Record the traces of the loop: traces -> HOME/recording, resumed after each restart.

Chunks expire by the newest second of a recording, and a recording takes no second twice. So a clock that is wrong for a
second must not write to it: after a jump of the clock nothing is recorded until the jump has lasted for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from clustertwin.core.errors import describe
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.recording import Recorder, RecordingSettings
from clustertwin.telemetry.recording.capture import JobLabels
from clustertwin.telemetry.recording.continuation import continue_recording, set_aside

#: A clock that is this much ahead of the last trace and the time since then, or behind them, has jumped. A smaller step
#: back is waited for.
AHEAD_S, BEHIND_S = 3600.0, 86_400.0
#: A jump that lasts for this long is believed.
BELIEVED_S = 600.0
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
    ) -> None:
        self.directory = directory
        self.lost = 0  # traces
        self.problem = ""
        self._settings = RecordingSettings(keep_s=keep_s, keep_bytes=keep_bytes)
        self._clock = clock
        self._newest: tuple[float, float] | None = None  # the end of the last trace, and when that was recorded
        self._jumped_s: float | None = None  # since when
        self._recorder: Recorder | None = None
        self._jobs, self._unwritten = JobLabels(), list[JobSpan]()
        self._note = ""  # an older recording was moved aside

    def add(self, trace: Trace) -> None:
        try:
            try:
                if self._is_held(trace):
                    return
                self._append(trace)
            except Exception:
                if self._recorder is None or not self._recorder.is_lost():
                    raise
                self._begin_again(trace)
            if self._recorder is not None:
                self._unwritten += self._jobs.changed(trace)
                self._write_labels()
            self.problem = self._note
        except Exception as error:
            self.lost += 1
            self.problem = f"recording failed: {describe(error)}"

    def _is_held(self, trace: Trace) -> bool:
        """Whether the trace is not recorded, because its clock has just jumped."""
        now_s = self._clock()
        if self._newest is None:  # how much time has passed before the start is not known
            newest_s = (self._recorder or self._open(trace)).newest_s
            self._newest = max(trace.end_s, newest_s or 0), now_s
        jump_s = trace.end_s - (self._newest[0] + now_s - self._newest[1])
        is_jump = not -BEHIND_S <= jump_s <= AHEAD_S
        self._jumped_s = (now_s if self._jumped_s is None else self._jumped_s) if is_jump else None
        if self._jumped_s is not None and now_s - self._jumped_s < BELIEVED_S:
            self.lost += 1
            hours = f"{jump_s / 3600:+.0f} h"
            self.problem = f"the clock jumped by {hours}; nothing is recorded until it stays so for 10 min"
            return True
        self._newest, self._jumped_s = (trace.end_s, now_s), None
        return False

    def _append(self, trace: Trace) -> None:
        recorder = self._recorder or self._open(trace)
        if why := _why_no_more(recorder, trace):
            recorder.close()
            aside = set_aside(self.directory)
            self._recorder, self._jobs, self._unwritten = None, JobLabels(), []
            recorder = self._open(trace)
            self._note = f"{self.directory} {why}: it is now {aside}, and a new recording has begun"
        if trace.node not in recorder.description.nodes:
            recorder.admit(trace.node, trace.cpus)
        recorder.append(trace)

    def _begin_again(self, trace: Trace) -> None:
        """Somebody has deleted the recording, or a part of it: begin a new one, with this trace first."""
        if self._recorder is not None:
            self._recorder.abandon()
        self._recorder, self._jobs, self._unwritten = None, JobLabels(), []
        self._append(trace)
        deleted = f"{self.directory} was deleted while the service ran: a new recording has begun"
        self._note = "; ".join(filter(None, [deleted, self._note]))

    def close(self) -> None:
        if self._recorder is None:
            return
        try:
            self._unwritten += self._jobs.ended()
            self._write_labels()
            self._recorder.close()
        except Exception as error:
            self.problem = f"recording failed: {describe(error)}"

    def _write_labels(self) -> None:
        """Write the labels that are not written yet: a job whose end is missing would seem to run on."""
        del self._unwritten[:-MOST_UNWRITTEN]
        if self._recorder is not None:
            self._recorder.label(*self._unwritten)
            self._unwritten.clear()

    def _open(self, trace: Trace) -> Recorder:
        self._recorder, self._note = continue_recording(self.directory, trace, self._settings)
        return self._recorder


def _why_no_more(recorder: Recorder, trace: Trace) -> str:
    """Why a recording cannot take a trace, in words that follow its name; empty if it can. Its threads are fixed."""
    if recorder.newest_s is not None and trace.end_s < recorder.newest_s - BEHIND_S:
        return "has seconds after now"
    known = recorder.description.nodes.get(trace.node, trace.cpus)
    return "" if trace.cpus == known or set(trace.cpus) <= set(known) else f"has fewer threads of {trace.node} than now"
