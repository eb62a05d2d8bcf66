"""Continue a recording with new traces, whatever an older version has recorded: directory, trace -> recorder, note.

A version with other node channels begins a new segment of them. If the channels of the threads differ, or the document
of the recording is gone, the whole old recording is moved aside, and a new one begins in its place.
"""

from __future__ import annotations

import os
from pathlib import Path

from clustertwin.core import files
from clustertwin.core.traces import Trace
from clustertwin.telemetry.recording import layout
from clustertwin.telemetry.recording.layout import RecordingSettings
from clustertwin.telemetry.recording.recorder import Recorder, lock_directory


def continue_recording(directory: Path, trace: Trace, settings: RecordingSettings) -> tuple[Recorder, str]:
    """A recorder for traces like this one, and a note for people if an older recording was moved; else empty."""
    node_schema = trace.node_channels.schema if trace.node_channels else None
    note = ""
    if directory.is_dir() and not (directory / layout.DOCUMENT).exists():
        note = _set_aside_rest(directory)
    elif (directory / layout.DOCUMENT).exists():
        description = layout.read_group(directory)
        if (description.schema, description.settings.interval_s) == (trace.schema, trace.interval_s):
            return Recorder.resume(directory, node_schema, settings), note
        aside = set_aside(directory)
        note = (
            f"{directory} was recorded with other channels ({', '.join(description.schema.names)}): "
            f"it is now {aside}, and a new recording has begun"
        )
    nodes = {trace.node: trace.cpus}
    recorder = Recorder.create(directory, nodes, trace.schema, node_schema=node_schema, settings=settings)
    return recorder, note


def _set_aside_rest(directory: Path) -> str:
    """Move a directory without its document away: a new recording would mix its seconds with older chunks."""
    if not any(path.name != layout.LOCK for path in directory.iterdir()):
        return ""
    aside = set_aside(directory)
    return f"{directory} had lost its {layout.DOCUMENT}: the rest is now {aside}, and a new recording has begun"


def set_aside(directory: Path) -> Path:
    """Move a recording, and return where it is now. It is not moved while another process writes to it."""
    lock = lock_directory(directory)
    try:
        aside = _free_name(directory)
        files.publish_directory(directory, aside)
    finally:
        os.close(lock)
    return aside


def _free_name(directory: Path) -> Path:
    number = 1
    while (path := directory.with_name(f"{directory.name}-{number}")).exists():
        number += 1
    return path
