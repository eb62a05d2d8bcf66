"""Record the traces of the loop: traces -> HOME/recording, resumed after each restart."""

from __future__ import annotations

from pathlib import Path

from clustertwin.core.errors import describe
from clustertwin.core.traces import Trace
from clustertwin.telemetry.recording import Recorder, RecordingSettings
from clustertwin.telemetry.recording.capture import JobLabels, with_cpus
from clustertwin.telemetry.recording.continuation import continue_recording


class LiveRecorder:
    """Never raises. A trace that cannot be recorded is counted in `lost`, and `problem` has the reason."""

    def __init__(self, directory: Path, keep_s: int | None, keep_bytes: int | None = None) -> None:
        self.directory = directory
        self.lost = 0  # traces
        self.problem = ""
        self._settings = RecordingSettings(keep_s=keep_s, keep_bytes=keep_bytes)
        self._recorder: Recorder | None = None
        self._jobs = JobLabels()
        self._note = ""  # an older recording was moved aside

    def add(self, trace: Trace) -> None:
        try:
            try:
                self._append(trace)
            except Exception:
                if self._recorder is None or not self._recorder.is_lost():
                    raise
                self._begin_again(trace)
            for span in self._jobs.changed(trace):
                if self._recorder is not None:
                    self._recorder.label(span)
            self.problem = self._note
        except Exception as error:
            self.lost += 1
            self.problem = f"recording failed: {describe(error)}"

    def _append(self, trace: Trace) -> None:
        recorder = self._recorder or self._open(trace)
        if trace.node not in recorder.description.nodes:
            recorder.admit(trace.node, trace.cpus)
        recorder.append(with_cpus(trace, recorder.description.nodes[trace.node]))

    def _begin_again(self, trace: Trace) -> None:
        """Somebody has deleted the recording, or a part of it: begin a new one, with this trace first."""
        if self._recorder is not None:
            self._recorder.abandon()
        self._recorder, self._jobs = None, JobLabels()
        self._append(trace)
        deleted = f"{self.directory} was deleted while the service ran: a new recording has begun"
        self._note = "; ".join(filter(None, [deleted, self._note]))

    def close(self) -> None:
        if self._recorder is None:
            return
        try:
            for span in self._jobs.ended():
                self._recorder.label(span)
            self._recorder.close()
        except Exception as error:
            self.problem = f"recording failed: {describe(error)}"

    def _open(self, trace: Trace) -> Recorder:
        self._recorder, self._note = continue_recording(self.directory, trace, self._settings)
        return self._recorder
