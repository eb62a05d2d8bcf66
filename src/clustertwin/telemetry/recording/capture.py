"""Record a source: traces as they arrive, or a range hour by hour -> a recording, and a summary of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from clustertwin.core.durations import HOUR_S
from clustertwin.core.errors import NoSamples, OutputError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.ingest.sources import HistorySource, traces
from clustertwin.telemetry.recording.layout import DOCUMENT, RecordingSettings
from clustertwin.telemetry.recording.recorder import Recorder

SAME_JOB_S = 15  # a job that is missing for longer gets a second span


@dataclass(frozen=True, slots=True)
class Taken:
    """The summary of one run."""

    start_s: int
    end_s: int
    nodes: int
    threads: int
    jobs: int
    refused: int  # thread-seconds that were not ratios
    unknown: int  # thread-seconds of cpus that their node did not have in its first trace
    interrupted: bool


def take(
    source: Iterable[Trace],
    directory: Path,
    settings: RecordingSettings = RecordingSettings(),
    on_trace: Callable[[Trace], None] = lambda trace: None,
) -> Taken:
    """Record traces until they end or you press Ctrl-C. In both cases the recording is closed and complete."""
    if (directory / DOCUMENT).exists():  # before anybody waits for the first second
        raise OutputError(f"{directory}: already holds a recording")
    recorder: Recorder | None = None
    jobs, names = JobLabels(), set[str]()
    start_s, end_s, unknown, interrupted = 0, 0, 0, False
    with ExitStack() as stack:
        try:
            for trace in source:
                if recorder is None:
                    recorder = Recorder.create(directory, {trace.node: trace.cpus}, trace.schema, settings=settings)
                    stack.enter_context(recorder)
                    start_s = trace.start_s
                elif trace.node not in recorder.description.nodes:
                    recorder.admit(trace.node, trace.cpus)
                known = with_cpus(trace, recorder.description.nodes[trace.node])
                unknown += (len(trace.cpus) - len(known.cpus)) * trace.valid.shape[1]
                recorder.append(known)
                recorder.label(*jobs.changed(trace))
                names.update(span.job for span in trace.spans)
                start_s, end_s = min(start_s, trace.start_s), max(end_s, trace.end_s)
                on_trace(trace)
        except KeyboardInterrupt:
            interrupted = True
        if recorder is None:
            raise NoSamples("there was no complete second: nothing is recorded")
        recorder.label(*jobs.ended())
        nodes = recorder.description.nodes
    threads = sum(map(len, nodes.values()))
    return Taken(start_s, end_s, len(nodes), threads, len(names), recorder.refused, unknown, interrupted)


def hour_by_hour(
    source: HistorySource,
    start_s: int,
    end_s: int,
    *,
    interval_s: int = 1,
    wide: bool = False,
    on_hole: Callable[[int, int], None] = lambda start_s, end_s: None,
) -> Iterator[Trace]:
    """The traces of a range of any length, an hour at a time.

    `on_hole` is called for each stretch of hours without samples. If there are none at all, the error says of what.
    """
    hole_s, found = -1, False
    missing: NoSamples | None = None
    for begin_s in range(start_s, end_s, HOUR_S):
        stop_s = min(begin_s + HOUR_S, end_s)
        try:
            part = traces(source, begin_s, stop_s, interval_s=interval_s, wide=wide)[0]
        except NoSamples as error:
            hole_s, missing = (begin_s if hole_s < 0 else hole_s), error
            continue
        if hole_s >= 0:
            on_hole(hole_s, begin_s)
        hole_s, found = -1, True
        yield from part
    if hole_s >= 0:
        on_hole(hole_s, end_s)
    if missing is not None and not found:
        raise missing


class JobLabels:
    """The spans of trace after trace -> one label when a job begins, and one when it has ended."""

    def __init__(self) -> None:
        self._running: dict[str, dict[tuple[str, tuple[int, ...]], JobSpan]] = {}  # node -> job -> its span so far

    def changed(self, trace: Trace) -> list[JobSpan]:
        """The labels to write after this trace."""
        labels, here = [], set()
        running = self._running.setdefault(trace.node, {})
        for span in sorted(trace.spans, key=lambda span: span.start_s):
            key = span.job, span.cpus
            here.add(key)
            known = running.get(key)
            if known is not None and span.start_s <= known.end_s + SAME_JOB_S:
                running[key] = replace(known, end_s=max(known.end_s, span.end_s))
                continue
            if known is not None:
                labels.append(known)
            labels.append(replace(span, end_s=math.inf))
            running[key] = span
        for key in [key for key in running if key not in here]:
            labels.append(running.pop(key))
        return labels

    def ended(self) -> list[JobSpan]:
        """The labels of the jobs that still run when the recording ends."""
        return [span for running in self._running.values() for span in running.values()]

    def ended_on(self, node: str) -> list[JobSpan]:
        """The labels of the jobs of a node that is silent."""
        return [*self._running.pop(node, {}).values()]


def with_cpus(trace: Trace, cpus: tuple[int, ...]) -> Trace:
    """The trace without threads that are not among these."""
    rows = [row for row, cpu in enumerate(trace.cpus) if cpu in cpus]
    if len(rows) == len(trace.cpus):
        return trace
    remaining = tuple(trace.cpus[row] for row in rows)
    return replace(trace, cpus=remaining, values=trace.values[rows], valid=trace.valid[rows])
