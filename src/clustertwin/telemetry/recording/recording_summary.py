"""Summarise a recording: its samples, bytes, jobs, and windows by job type, with one day in memory at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from clustertwin.core.durations import DAY_S
from clustertwin.core.traces import Trace, Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.recording.reader import Recording


@dataclass(frozen=True, slots=True)
class Summary:
    """A sample is one channel of one thread in one second; node channels are listed, and not counted."""

    directory: str
    campaign: str
    split: str
    nodes: dict[str, int]  # node -> threads
    channels: tuple[str, ...]
    start_s: int
    end_s: int
    samples: int
    missing_ratio: float  # unknown thread-seconds, as a part of all between start and end
    size_bytes: int
    bytes_per_sample: float
    jobs: int
    windows: dict[str, int]  # job type -> windows


def summarise(recording: Recording, length_s: int = 100) -> Summary:
    """Read the whole recording once, one node and about one day at a time."""
    known, total, counts = 0, 0, Counter[str]()
    for trace in _days(recording, length_s):
        known, total = known + int(trace.valid.sum()), total + trace.valid.size
        counts.update(str(kind) for kind in _windows(recording, trace, length_s).job_type)
    samples = known * len(recording.schema)
    size_bytes = recording.size_bytes
    return Summary(
        directory=str(recording.directory),
        campaign=recording.campaign,
        split=recording.split,
        nodes={node: len(cpus) for node, cpus in recording.nodes.items()},
        channels=(*recording.schema.names, *recording.node_schema.names),
        start_s=recording.start_s,
        end_s=recording.end_s,
        samples=samples,
        missing_ratio=1 - known / total if total else 0.0,
        size_bytes=size_bytes,
        bytes_per_sample=size_bytes / samples if samples else 0.0,
        jobs=len({span.job for span in recording.spans}),
        windows=dict(sorted(counts.items())),
    )


def day_by_day(recording: Recording, length_s: int = 100) -> Iterator[Windows]:
    """The windows of `Recording.windows`, one node and about one day at a time."""
    return (_windows(recording, trace, length_s) for trace in _days(recording, length_s))


def _days(recording: Recording, length_s: int) -> Iterator[Trace]:
    """Each node's traces of about a day, of whole windows."""
    day_s = max(DAY_S // length_s, 1) * length_s
    for node in recording.nodes:
        for start_s in range(recording.start_s, recording.end_s, day_s):
            yield recording.trace(node, start_s, min(start_s + day_s, recording.end_s))


def _windows(recording: Recording, trace: Trace, length_s: int) -> Windows:
    return cut(trace, length_s, None, recording.campaign, recording.split)
