"""The last minutes of every thread of a cluster up to one second, live or recorded: the input of a detector.

A job can span nodes, so a moment holds all nodes. It does not hold job types: a detector knows which job holds a thread
and since when, but not what kind of job it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, NodeChannels, Trace, Windows

LENGTH_S = 300
WINDOW_S = 100
IDLE = "idle"  # the job type that a campaign gives to time without a job


@dataclass(frozen=True, slots=True)
class JobMoment:
    """The channels of jobs over the seconds of a moment: one row for each job and node. NaN where unknown."""

    schema: Schema
    jobs: tuple[str, ...]  # (row,)
    node: NDArray[np.int32]  # (row,) index into the nodes of the moment
    values: NDArray[np.float32]  # (row, second, channel)

    def rows_of(self, job: str) -> list[int]:
        """The rows of a job, one for each of its nodes."""
        return [row for row, name in enumerate(self.jobs) if name == job]


@dataclass(frozen=True, slots=True)
class Moment:
    """The seconds of every thread up to `end_s`, zero where not valid. Threads are ordered by node, then by cpu.

    A valid second can hold NaN in a channel that the node does not report.
    """

    end_s: int
    schema: Schema
    values: NDArray[np.float32]  # (thread, second, channel)
    valid: NDArray[np.bool_]  # (thread, second)
    nodes: tuple[str, ...]
    node: NDArray[np.int32]  # (thread,) index into nodes
    cpu: NDArray[np.int32]  # (thread,)
    jobs: tuple[str, ...]
    job: NDArray[np.int32]  # (thread,) index into jobs, -1: no job
    age_s: NDArray[np.int32]  # (thread,) seconds since the thread got this job, or lost its last one
    node_channels: NodeChannels | None = None  # (node, second, channel) as `nodes`; context, not scored
    job_channels: JobMoment | None = None  # of the jobs that ran in these seconds; context, not scored

    def __len__(self) -> int:
        return len(self.values)

    @property
    def settled(self) -> NDArray[np.bool_]:
        """(thread,) True where no job started or ended on the thread within the last 100 s."""
        return self.age_s >= WINDOW_S

    def windows(self, length: int = WINDOW_S) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The last `length` seconds: values (thread, length, channel) and valid (thread, length)."""
        if self.values.shape[1] < length:
            raise SettingsError(f"a moment of {self.values.shape[1]} s has no window of {length} s")
        return self.values[:, -length:], self.valid[:, -length:]

    def select(self, schema: Schema) -> Moment:
        """The moment with the channels of `schema`, found by name; a view where they are the first channels."""
        if self.schema == schema:
            return self
        if not set(schema.names) <= set(self.schema.names):
            raise SettingsError(
                f"the channels {', '.join(schema.names)} are needed; this moment has {', '.join(self.schema.names)}"
            )
        if self.schema.names[: len(schema)] == schema.names:
            return replace(self, schema=schema, values=self.values[..., : len(schema)])
        return replace(self, schema=schema, values=self.values[..., [self.schema.index(name) for name in schema.names]])

    def take(self, rows: NDArray[np.intp] | slice) -> Moment:
        """The moment with these threads only; a view if `rows` is a slice. Node and job indices stay valid."""
        columns = {name: getattr(self, name)[rows] for name in ("values", "valid", "node", "cpu", "job", "age_s")}
        return replace(self, **columns)

    def with_peers(self, threads: NDArray[np.intp]) -> tuple[Moment, NDArray[np.intp]]:
        """The moment with these threads and all other threads of their jobs, and the rows of `threads` in it."""
        chosen = np.isin(self.job, self.job[threads][self.job[threads] >= 0])
        chosen[threads] = True
        rows = np.flatnonzero(chosen)
        return self.take(rows), np.searchsorted(rows, threads)


class NodeBlock(NamedTuple):
    """The seconds of one node's threads."""

    node: str
    cpus: tuple[int, ...]
    values: NDArray[np.float32]  # (cpu, second, channel)
    valid: NDArray[np.bool_]  # (cpu, second)


def moments(
    traces: Sequence[Trace], every_s: int = WINDOW_S, length_s: int = LENGTH_S, first_s: int | None = None
) -> Iterator[tuple[Moment, Windows]]:
    """Recorded traces -> the moments that a live detector would see, each with the labels of its last window.

    A window that contains an onset but is mostly healthy has the job type "mixed", so that an alarm on it is not
    counted as false.
    """
    from clustertwin.core.windows import describe

    traces = sorted(traces, key=lambda trace: trace.node)
    if not traces:
        return
    schema = traces[0].schema
    for trace in traces:
        if trace.interval_s != 1:
            raise SettingsError(f"{trace.node}: a sample every {trace.interval_s} s; a detector needs one every second")
        if trace.schema != schema:
            raise SettingsError(f"{trace.node}: other channels than {traces[0].node}")
    start_s, end_s = min(trace.start_s for trace in traces), max(trace.end_s for trace in traces)
    for now_s in range(start_s + length_s if first_s is None else first_s, end_s + 1, every_s):
        blocks = [_cut(trace, now_s, length_s) for trace in traces]
        spans = [span for trace in traces for span in trace.spans]
        moment = replace(
            assemble(now_s, schema, blocks, spans, start_s),
            node_channels=_cut_node_channels(traces, now_s, length_s),
            job_channels=_cut_job_channels(traces, now_s, length_s),
        )
        window_s = min(WINDOW_S, length_s)
        labels = []
        for trace, block in zip(traces, blocks, strict=True):
            last = Trace(
                trace.node,
                trace.cpus,
                now_s - window_s,
                schema,
                block.values[:, -window_s:],
                block.valid[:, -window_s:],
                trace.spans,
            )
            labels.append(describe(last, last.values, np.ones_like(last.valid), window_s, window_s))
        yield moment, _mixed_at_onset(Windows.concat(labels), spans, now_s)


def _mixed_at_onset(labels: Windows, spans: Sequence[JobSpan], end_s: int) -> Windows:
    """Label healthy windows in which an anomaly has begun as "mixed"."""
    began = {(s.node, s.job, cpu) for s in spans if s.onset_s is not None and s.onset_s < end_s for cpu in s.cpus}
    places = zip(labels.node.tolist(), labels.job.tolist(), labels.cpu.tolist(), strict=True)
    late = np.array([place in began for place in places], np.bool_) & (labels.anomaly == "")
    if not late.any():
        return labels
    return replace(labels, job_type=np.where(late, "mixed", labels.job_type))


def assemble(
    end_s: int,
    schema: Schema,
    blocks: Sequence[tuple[str, tuple[int, ...], NDArray[np.float32], NDArray[np.bool_]]],
    spans: Sequence[JobSpan],
    start_s: int = 0,
) -> Moment:
    """A `NodeBlock` for each node and the spans of their jobs -> the moment that ends at `end_s`."""
    spans = [span for span in spans if span.job_type != IDLE]
    nodes = tuple(name for name, *_ in blocks)
    node = np.repeat(np.arange(len(blocks), dtype=np.int32), [len(cpus) for _, cpus, *_ in blocks])
    cpu = np.concatenate([np.asarray(cpus, np.int32) for _, cpus, *_ in blocks])
    jobs = tuple(sorted({span.job for span in spans if span.start_s < end_s <= span.end_s}))
    number = {job: i for i, job in enumerate(jobs)}
    row = {(nodes[n], int(c)): i for i, (n, c) in enumerate(zip(node, cpu, strict=True))}
    job = np.full(len(node), -1, np.int32)
    since_s = np.full(len(node), float(start_s))
    for span in spans:
        for c in span.cpus:
            i = row.get((span.node, c))
            if i is None or span.start_s >= end_s:
                continue
            if span.end_s >= end_s:
                job[i] = number[span.job]
                since_s[i] = max(since_s[i], span.start_s)
            else:
                since_s[i] = max(since_s[i], span.end_s)
    values = np.concatenate([values for *_, values, _ in blocks])
    valid = np.concatenate([valid for *_, valid in blocks])
    age_s = np.maximum(end_s - np.ceil(since_s), 0).astype(np.int32)
    return Moment(end_s, schema, values, valid, nodes, node, cpu, jobs, job, age_s)


def _cut(trace: Trace, end_s: int, length_s: int) -> NodeBlock:
    """The trace's seconds in [end_s - length_s, end_s), invalid where it has none."""
    values = np.zeros((len(trace.cpus), length_s, len(trace.schema)), np.float32)
    valid = np.zeros(values.shape[:2], np.bool_)
    source, target = _overlap(trace, end_s, length_s)
    values[:, target], valid[:, target] = trace.values[:, source], trace.valid[:, source]
    values[~valid] = 0
    return NodeBlock(trace.node, trace.cpus, values, valid)


def _cut_node_channels(traces: Sequence[Trace], end_s: int, length_s: int) -> NodeChannels | None:
    """The node channels of all traces in [end_s - length_s, end_s), by name; None if no trace has any."""
    schema = _joined_schema([trace.node_channels.schema for trace in traces if trace.node_channels is not None])
    if schema is None:
        return None
    values = np.full((len(traces), length_s, len(schema)), np.nan, np.float32)
    for row, trace in enumerate(traces):
        if trace.node_channels is not None:
            columns = [schema.index(name) for name in trace.node_channels.schema.names]
            source, target = _overlap(trace, end_s, length_s)
            values[row, target, columns] = trace.node_channels.values[source].T
    return NodeChannels(schema, values)


def _cut_job_channels(traces: Sequence[Trace], end_s: int, length_s: int) -> JobMoment | None:
    """The same for the jobs that have a known second there."""
    schema = _joined_schema([trace.job_channels.schema for trace in traces if trace.job_channels is not None])
    if schema is None:
        return None
    jobs: list[str] = []
    node: list[int] = []
    blocks: list[NDArray[np.float32]] = [np.empty((0, length_s, len(schema)), np.float32)]
    for number, trace in enumerate(traces):
        if trace.job_channels is None:
            continue
        source, target = _overlap(trace, end_s, length_s)
        columns = [schema.index(name) for name in trace.job_channels.schema.names]
        for job, values in zip(trace.job_channels.jobs, trace.job_channels.values[:, source], strict=True):
            if np.isnan(values).all():
                continue
            block = np.full((1, length_s, len(schema)), np.nan, np.float32)
            block[0, target, columns] = values.T
            jobs.append(job)
            node.append(number)
            blocks.append(block)
    return JobMoment(schema, tuple(jobs), np.array(node, np.int32), np.concatenate(blocks))


def _joined_schema(schemas: list[Schema]) -> Schema | None:
    channels = dict.fromkeys(channel for schema in schemas for channel in schema.channels)
    return Schema(tuple(channels)) if schemas else None


def _overlap(trace: Trace, end_s: int, length_s: int) -> tuple[slice, slice]:
    """The seconds [end_s - length_s, end_s) that a trace has: where they are in it, and where in the window."""
    first = end_s - length_s - trace.start_s
    lo, hi = max(first, 0), max(min(first + length_s, trace.values.shape[1]), max(first, 0))
    return slice(lo, hi), slice(lo - first, hi - first)
