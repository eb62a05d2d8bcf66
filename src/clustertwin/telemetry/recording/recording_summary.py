"""Summarise a recording: its samples, bytes, jobs, and windows by job type, with one day in memory at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from clustertwin.core.durations import DAY_S
from clustertwin.core.traces import Windows
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
    """Read the whole recording once, one node and one day at a time."""
    known, total, counts = 0, 0, Counter[str]()
    for windows in day_by_day(recording, length_s):
        counts.update(str(kind) for kind in windows.job_type)
    for node in recording.nodes:
        for start_s in range(recording.start_s, recording.end_s, DAY_S):
            valid = recording.trace(node, start_s, min(start_s + DAY_S, recording.end_s)).valid
            known, total = known + int(valid.sum()), total + valid.size
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
    day_s = max(DAY_S // length_s, 1) * length_s
    for node in recording.nodes:
        for start_s in range(recording.start_s, recording.end_s, day_s):
            trace = recording.trace(node, start_s, min(start_s + day_s, recording.end_s))
            yield cut(trace, length_s, None, recording.campaign, recording.split)
