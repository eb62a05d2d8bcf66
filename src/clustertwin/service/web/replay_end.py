"""Whether a replay has shown its whole recording: the published state -> True or False.

A replay's clock stops at the end of the recording that it opened. The app reads that end when it is created.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from clustertwin.core.errors import TwinError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.recording.trace_archive import GrowingRecordingArchive

_ends: WeakKeyDictionary[GrowingRecordingArchive, int | None] = WeakKeyDictionary()


def replay_end_s(state: ServiceState) -> int | None:
    """The last second of the replayed recording; None if the state is not a replay. Each archive is read once."""
    archive = state.past
    if not state.replayed or not isinstance(archive, GrowingRecordingArchive):
        return None
    if archive not in _ends:
        try:
            _ends[archive] = Recording.open(archive.directory).end_s
        except TwinError:
            _ends[archive] = None
    return _ends[archive]


def replay_ended(state: ServiceState) -> bool:
    end_s = replay_end_s(state)
    return end_s is not None and state.snapshot.now_s >= end_s
