"""The embedded recording: traces and job labels -> a directory of compressed chunks -> traces and windows.

A recording is a Zarr v3 group that the `zarr` package opens too, with a journal for the seconds not yet in a chunk.
"""

from clustertwin.telemetry.recording.layout import RecordingSettings, find
from clustertwin.telemetry.recording.reader import Recording
from clustertwin.telemetry.recording.recorder import Recorder

__all__ = ["Recorder", "Recording", "RecordingSettings", "find"]
