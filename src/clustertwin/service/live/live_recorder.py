"""Record the traces of the loop: traces -> HOME/recording, resumed after each restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clustertwin.core.errors import OutputError, RecordingError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.recording import Recorder, RecordingSettings
from clustertwin.telemetry.recording.capture import Jobs
from clustertwin.telemetry.recording.layout import DOCUMENT


class LiveRecorder:
    """Never raises. A trace that cannot be recorded is counted in `lost`, and `problem` has the reason."""

    def __init__(self, directory: Path, keep_s: int | None) -> None:
        self.directory = directory
        self.lost = 0  # traces
        self.problem = ""
        self._settings = RecordingSettings(keep_s=keep_s)
        self._recorder: Recorder | None = None
        self._jobs = Jobs()

    def add(self, trace: Trace) -> None:
        try:
            recorder = self._recorder or self._open(trace)
            if trace.node not in recorder.about.nodes:
                recorder.admit(trace.node, trace.cpus)
            recorder.append(_known(trace, recorder.about.nodes[trace.node]))
            for span in self._jobs.changed(trace):
                recorder.label(span)
            self.problem = ""
        except (OutputError, RecordingError) as error:
            self.lost += 1
            self.problem = f"recording failed: {error}"

    def close(self) -> None:
        if self._recorder is None:
            return
        try:
            for span in self._jobs.ended():
                self._recorder.label(span)
            self._recorder.close()
        except (OutputError, RecordingError) as error:
            self.problem = f"recording failed: {error}"

    def _open(self, trace: Trace) -> Recorder:
        if (self.directory / DOCUMENT).exists():
            self._recorder = Recorder.resume(self.directory)
        else:
            nodes = {trace.node: trace.cpus}
            self._recorder = Recorder.create(self.directory, nodes, trace.schema, settings=self._settings)
        return self._recorder


def _known(trace: Trace, cpus: tuple[int, ...]) -> Trace:
    """Drop threads that were added after the node joined the recording."""
    rows = [row for row, cpu in enumerate(trace.cpus) if cpu in cpus]
    if len(rows) == len(trace.cpus):
        return trace
    known = tuple(trace.cpus[row] for row in rows)
    return replace(trace, cpus=known, values=trace.values[rows], valid=trace.valid[rows])
