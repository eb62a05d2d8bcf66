"""The embedded recording: traces and job labels <-> a directory of compressed chunks.

A recording is a Zarr v3 group, which the `zarr` package can open, with a journal for the seconds not in a chunk yet.
"""

from clustertwin.telemetry.recording.layout import RecordingSettings, find
from clustertwin.telemetry.recording.reader import Recording
from clustertwin.telemetry.recording.recorder import Recorder

__all__ = ["Recorder", "Recording", "RecordingSettings", "find"]
