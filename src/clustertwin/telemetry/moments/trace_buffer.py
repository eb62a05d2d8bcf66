"""The last minutes of a cluster as they arrive: traces of single nodes -> the moment up to any second.

buffer = TraceBuffer(CPU)
buffer.push(trace)            # of any node, whenever it has new seconds
scores = detector.score(buffer.moment(end_s))

A second that was not pushed is invalid. A thread that was not heard from for `forget_s` is dropped, and so is a node
without threads. A moment is a view, so it costs the same for two threads and for a hundred thousand. It keeps its
content, except for seconds that arrive late. A trace far ahead of all others (a node with a wrong clock) waits until a
moment that late is asked for; only the newest such trace of each node is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import is_not

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.moments.job_channel_buffer import JobChannelBuffer
from clustertwin.telemetry.moments.moment import LENGTH_S, Moment
from clustertwin.telemetry.moments.node_channel_buffer import NodeChannelBuffer
from clustertwin.telemetry.moments.node_jobs import NodeJobs, ThreadJobs
from clustertwin.telemetry.moments.sliding_window import SlidingWindow

#: Of one node, with those that it no longer has: a source that invents thread numbers must not fill the memory.
MOST_THREADS = 16_384
#: Of all nodes: a thread takes 7 KB, and twice that while its seconds are copied.
MOST_THREADS_TOGETHER = 250_000
#: At the limit, threads that were not heard from for this long are dropped. A source of pushed nodes gives their room
#: to others after the same time.
SILENT_S = 60


class _Node:
    """The columns of a node's threads, and its jobs."""

    def __init__(self, remember_s: int) -> None:
        self.cpus: tuple[int, ...] = ()
        self.columns = np.zeros(0, np.intp)  # (cpu,)
        self.jobs = NodeJobs(remember_s)

    def add(self, cpus: tuple[int, ...], columns: slice) -> None:
        order = np.argsort([*self.cpus, *cpus])
        self.cpus = tuple(sorted((*self.cpus, *cpus)))
        self.columns = np.concatenate([self.columns, np.arange(columns.start, columns.stop)])[order]

    def keep(self, kept: NDArray[np.bool_]) -> None:
        self.cpus = tuple(np.array(self.cpus)[kept].tolist())
        self.columns = self.columns[kept]


@dataclass(frozen=True, slots=True)
class _Layout:
    """The thread of each column while the columns are ordered by node, then by cpu."""

    nodes: tuple[str, ...]
    node: NDArray[np.int32]  # (column,)
    cpu: NDArray[np.int32]  # (column,)


@dataclass(frozen=True, slots=True)
class _ColumnJobs:
    """The job of each column, and since when."""

    names: tuple[str, ...]
    job: NDArray[np.int32]  # (column,) index into names, -1: none
    since_s: NDArray[np.float64]  # (column,) in whole seconds


def _join(nodes: list[ThreadJobs]) -> _ColumnJobs:
    """The jobs of all nodes with one numbering, by name: a job can span nodes."""
    names = tuple(sorted({job for node in nodes for job in node.jobs}))
    number = {job: i for i, job in enumerate(names)}
    job = [np.array([*(number[name] for name in node.jobs), -1], np.int32)[node.job] for node in nodes]
    return _ColumnJobs(names, np.concatenate(job), np.ceil(np.concatenate([node.since_s for node in nodes])))


class TraceBuffer:
    def __init__(
        self,
        schema: Schema,
        length_s: int = LENGTH_S,
        forget_s: int = 3600,
        most_threads: int = MOST_THREADS_TOGETHER,
    ) -> None:
        self.schema, self.length_s, self.forget_s, self.most_threads = schema, length_s, forget_s, most_threads
        self._seconds = SlidingWindow(len(schema), length_s)
        self._node_channels = NodeChannelBuffer(length_s)
        self._job_channels = JobChannelBuffer(length_s)
        self._nodes: dict[str, _Node] = {}
        self._now_s: float = np.inf  # the end of the last moment
        self._ahead: dict[str, Trace] = {}  # the newest trace of each node that has no rows yet
        self._first_s = np.zeros(0, np.int64)  # (column,) the first second heard of
        self._heard_s = np.zeros(0, np.int64)  # (column,) the end of the last
        self._layout: _Layout | None = None  # None: a thread was added or dropped, so the columns are out of order
        self._joined: tuple[list[ThreadJobs], _ColumnJobs] | None = None  # the last result, until a job starts or ends

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted(self._nodes))

    def push(self, trace: Trace) -> None:
        """Add a node's seconds. A second that is pushed twice is overwritten.

        Channels are matched by name. A bounded channel that the trace does not have is NaN.
        """
        if trace.schema != self.schema or trace.interval_s != 1:
            trace = _fitted(trace, self.schema)
        if not self._seconds.reaches(trace.end_s):
            self._ahead[trace.node] = trace
            return
        self._ahead.pop(trace.node, None)
        node = self._nodes.get(trace.node)
        if node is None:
            node = self._nodes[trace.node] = _Node(self.length_s)
        columns: slice | NDArray[np.intp]
        if trace.cpus is node.cpus or trace.cpus == node.cpus:
            node.cpus = trace.cpus  # the next trace has the same tuple, and comparing by identity is fast
            columns = slice(node.columns[0], node.columns[0] + len(node.cpus)) if self._layout else node.columns
        else:
            if new := tuple(sorted(set(trace.cpus) - set(node.cpus))):
                if len(node.cpus) + len(new) > MOST_THREADS:
                    raise InputError(trace.node, f"{len(node.cpus) + len(new)} threads; the limit is {MOST_THREADS}")
                self._reserve(trace, len(new))
                node.add(new, self._seconds.add(len(new)))
                since_s = np.full(len(new), trace.start_s)
                self._first_s, self._heard_s = (np.append(known, since_s) for known in (self._first_s, self._heard_s))
                self._layout = None
            columns = node.columns[np.searchsorted(node.cpus, trace.cpus)]
        self._heard_s[columns] = trace.end_s
        self._seconds.write(trace, columns)
        node.jobs.push(trace)
        self._node_channels.push(trace)
        self._job_channels.push(trace)

    def _reserve(self, trace: Trace, threads: int) -> None:
        """Refuse new threads over the limit, so that those of other nodes go on.

        Then threads that are silent are dropped early, and there is room for others later. A trace may be ahead of
        the clock, so the last moment counts, too.
        """
        if self._seconds.used + threads > self.most_threads:
            self._forget(min(trace.end_s, self._now_s) - min(SILENT_S, self.length_s))
            raise InputError(trace.node, f"the limit of {self.most_threads} threads of all nodes is reached")

    def drop(self, name: str) -> None:
        """Forget a node and its threads."""
        self._ahead.pop(name, None)
        if self._nodes.pop(name, None) is not None:
            self._layout = None

    def make_room(self, end_s: int, later_s: int) -> None:
        """Copy the seconds now if the moment `later_s` after `end_s` would have to; with many threads that is slow."""
        if self._layout:
            self._seconds.make_room(end_s, later_s)

    def moment(self, end_s: int) -> Moment:
        """The seconds of every known thread in [end_s - length_s, end_s); SettingsError while no node is known."""
        self._now_s = end_s
        self._forget(end_s - self.forget_s)
        if self._ahead:
            self._seconds.window(end_s)  # makes room for them
            # Known nodes first: a new one that finds no room makes threads go that are silent.
            for name, trace in sorted(self._ahead.items(), key=lambda each: each[0] not in self._nodes):
                try:
                    self.push(trace)
                except InputError:  # over a limit; its next trace is refused by name
                    self.drop(name)
        if not self._nodes:
            raise SettingsError("the buffer is empty: no node has sent any seconds yet")
        layout = self._layout = self._layout or self._sort(end_s)
        values, valid = self._seconds.window(end_s)
        jobs = self._column_jobs(layout, end_s)
        np.minimum(self._first_s, end_s, out=self._first_s)  # the clock may have been set back since
        # A job can be older than the first second that was heard of its threads.
        since_s = np.maximum(jobs.since_s, self._first_s)
        return Moment(
            end_s=end_s,
            schema=self.schema,
            values=values,
            valid=valid,
            nodes=layout.nodes,
            node=layout.node,
            cpu=layout.cpu,
            jobs=jobs.names,
            job=jobs.job,
            age_s=np.maximum(end_s - since_s, 0).astype(np.int32),
            node_channels=self._node_channels.window(layout.nodes, end_s),
            job_channels=self._job_channels.window(layout.nodes, end_s),
        )

    def spans(self, end_s: int) -> list[JobSpan]:
        """The spans of all nodes that began before `end_s`; a running span ends at infinity."""
        return [span for name in self.nodes for span in self._nodes[name].jobs.spans_at(end_s)]

    def _sort(self, end_s: int) -> _Layout:
        """Order the columns by node, then by cpu; columns of dropped threads are left out."""
        names = self.nodes
        nodes = [self._nodes[name] for name in names]
        order = np.concatenate([node.columns for node in nodes])
        self._seconds.move(end_s - self.length_s, order)
        self._first_s, self._heard_s = self._first_s[order], self._heard_s[order]
        sizes = [len(node.cpus) for node in nodes]
        for node, end in zip(nodes, np.cumsum(sizes).tolist(), strict=True):
            node.columns = np.arange(end - len(node.cpus), end)
        return _Layout(
            names,
            np.repeat(np.arange(len(nodes), dtype=np.int32), sizes),
            np.concatenate([node.cpus for node in nodes]).astype(np.int32),
        )

    def _column_jobs(self, layout: _Layout, end_s: int) -> _ColumnJobs:
        nodes = [self._nodes[name] for name in layout.nodes]
        jobs = [node.jobs.jobs_at(node.cpus, end_s) for node in nodes]
        if self._joined is None or len(jobs) != len(self._joined[0]) or any(map(is_not, jobs, self._joined[0])):
            self._joined = jobs, _join(jobs)
        return self._joined[1]

    def _forget(self, before_s: float) -> None:
        expired = self._heard_s < before_s
        if not expired.any():
            return
        self._layout = None
        for name, node in list(self._nodes.items()):
            kept = ~expired[node.columns]
            if kept.any():
                node.keep(kept)
            else:
                del self._nodes[name]


def _fitted(trace: Trace, schema: Schema) -> Trace:
    """The trace with the channels of `schema`: matched by name, NaN for bounded channels that it does not have."""
    bounded = {schema.names[i] for i in schema.bounded}
    if trace.interval_s != 1 or set(schema.names) - set(trace.schema.names) - bounded:
        raise SettingsError(
            f"{trace.node}: {', '.join(trace.schema.names)} every {trace.interval_s} s; "
            f"the buffer needs {', '.join(schema.names)} every second"
        )
    values = np.full((*trace.values.shape[:2], len(schema)), np.nan, np.float32)
    for i, name in enumerate(schema.names):
        if name in trace.schema.names:
            values[..., i] = trace.values[..., trace.schema.index(name)]
    return replace(trace, schema=schema, values=values)
