"""Record what the embedded loop sees: traces -> home/recording, resumed after every restart; a full disk is told of."""

from __future__ import annotations

from pathlib import Path

from clustertwin.core.errors import OutputError, RecordingError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.recording import Recorder, RecordingSettings
from clustertwin.telemetry.recording.capture import JobLabels, with_cpus
from clustertwin.telemetry.recording.continuation import continue_recording

WEEK_S = 7 * 86_400


class Keeper:
    """Never raises: what cannot be recorded is counted in `lost`, with the reason in `problem`."""

    def __init__(self, directory: Path, keep_s: int | None = WEEK_S) -> None:
        self.directory = directory
        self.lost = 0  # traces
        self.problem = ""
        self._settings = RecordingSettings(keep_s=keep_s)
        self._recorder: Recorder | None = None
        self._jobs = JobLabels()
        self._note = ""  # an older recording was moved aside

    def add(self, trace: Trace) -> None:
        try:
            recorder = self._recorder or self._open(trace)
            if trace.node not in recorder.description.nodes:
                recorder.admit(trace.node, trace.cpus)
            recorder.append(with_cpus(trace, recorder.description.nodes[trace.node]))
            for span in self._jobs.changed(trace):
                recorder.label(span)
            self.problem = self._note
        except (OutputError, RecordingError) as error:
            self.lost += 1
            self.problem = f"not recorded: {error}"

    def close(self) -> None:
        if self._recorder is None:
            return
        try:
            for span in self._jobs.ended():
                self._recorder.label(span)
            self._recorder.close()
        except (OutputError, RecordingError) as error:
            self.problem = f"not recorded: {error}"

    def _open(self, trace: Trace) -> Recorder:
        self._recorder, self._note = continue_recording(self.directory, trace, self._settings)
        return self._recorder
