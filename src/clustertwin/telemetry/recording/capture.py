"""From sources to a recording: traces as they come, or a range hour by hour -> a directory, and what it took."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from clustertwin.core.errors import NoSamples
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.ingest.sources import HistorySource, traces
from clustertwin.telemetry.recording.layout import RecordingSettings
from clustertwin.telemetry.recording.recorder import Recorder

HOUR_S = 3600
SAME_JOB_S = 15  # a job that is away for longer has two spans


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run of recording came to."""

    start_s: int
    end_s: int
    nodes: int
    threads: int
    jobs: int
    refused: int  # thread-seconds that were no ratios
    unknown: int  # thread-seconds of cpus that were not there when their node was first seen
    interrupted: bool


def take(
    source: Iterable[Trace],
    directory: Path,
    settings: RecordingSettings = RecordingSettings(),
    on_trace: Callable[[Trace], None] = lambda trace: None,
) -> Taken:
    """Record traces until they end or the person presses Ctrl-C; either way the recording is closed and whole."""
    recorder: Recorder | None = None
    jobs = Jobs()
    start_s, end_s, unknown, interrupted = 0, 0, 0, False
    with ExitStack() as stack:
        try:
            for trace in source:
                if recorder is None:
                    recorder = Recorder.create(directory, {trace.node: trace.cpus}, trace.schema, settings=settings)
                    stack.enter_context(recorder)
                    start_s = trace.start_s
                elif trace.node not in recorder.about.nodes:
                    recorder.admit(trace.node, trace.cpus)
                known = _only(trace, recorder.about.nodes[trace.node])
                unknown += (len(trace.cpus) - len(known.cpus)) * trace.valid.shape[1]
                recorder.append(known)
                for span in jobs.changed(trace):
                    recorder.label(span)
                start_s, end_s = min(start_s, trace.start_s), max(end_s, trace.end_s)
                on_trace(trace)
        except KeyboardInterrupt:
            interrupted = True
        if recorder is None:
            raise NoSamples("not one whole second was seen: nothing was recorded")
        for span in jobs.ended():
            recorder.label(span)
        nodes = recorder.about.nodes
    threads = sum(map(len, nodes.values()))
    return Taken(start_s, end_s, len(nodes), threads, jobs.count, recorder.refused, unknown, interrupted)


def hour_by_hour(
    source: HistorySource,
    start_s: int,
    end_s: int,
    *,
    interval_s: int = 1,
    wide: bool = False,
    on_hole: Callable[[int, int], None] = lambda start_s, end_s: None,
) -> Iterator[Trace]:
    """The traces of a range of any length, never more than an hour in memory; hours without samples are told of."""
    for begin_s in range(start_s, end_s, HOUR_S):
        stop_s = min(begin_s + HOUR_S, end_s)
        try:
            yield from traces(source, begin_s, stop_s, interval_s=interval_s, wide=wide)[0]
        except NoSamples:
            on_hole(begin_s, stop_s)


class Jobs:
    """Spans seen trace by trace -> one label when a job begins, one when it has ended."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str, tuple[int, ...]], JobSpan] = {}  # its span as far as it was seen
        self._seen: set[tuple[str, str]] = set()

    @property
    def count(self) -> int:
        return len({job for _, job in self._seen})

    def changed(self, trace: Trace) -> list[JobSpan]:
        """The labels to write after this trace."""
        labels, here = [], set()
        for span in sorted(trace.spans, key=lambda span: span.start_s):
            key = span.node, span.job, span.cpus
            here.add(key)
            known = self._running.get(key)
            if known is not None and span.start_s <= known.end_s + SAME_JOB_S:
                self._running[key] = replace(known, end_s=max(known.end_s, span.end_s))
                continue
            if known is not None:
                labels.append(known)
            labels.append(replace(span, end_s=math.inf))
            self._running[key] = span
            self._seen.add(key[:2])
        for key in [key for key in self._running if key[0] == trace.node and key not in here]:
            labels.append(self._running.pop(key))
        return labels

    def ended(self) -> list[JobSpan]:
        """The labels of what still ran when the recording ended."""
        return list(self._running.values())


def _only(trace: Trace, cpus: tuple[int, ...]) -> Trace:
    """The trace without threads that the recording has no room for."""
    rows = [row for row, cpu in enumerate(trace.cpus) if cpu in cpus]
    if len(rows) == len(trace.cpus):
        return trace
    kept = tuple(trace.cpus[row] for row in rows)
    return replace(trace, cpus=kept, values=trace.values[rows], valid=trace.valid[rows])
