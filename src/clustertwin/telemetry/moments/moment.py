"""The last minutes of every thread of a cluster, up to one second: what a detector looks at, live or recorded.

A job may span nodes, so a moment holds all nodes together. Job types are a person's words and not part of it: a
detector knows which job holds a thread and since when, never what the job is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, NodeChannels, Trace, Windows

LENGTH_S = 300
WINDOW_S = 100
IDLE = "idle"  # what a campaign calls the time in which nobody holds a thread


@dataclass(frozen=True, slots=True)
class Moment:
    """Every thread's seconds up to `end_s`; zero where not valid. Threads are ordered by node, then cpu."""

    end_s: int
    schema: Schema
    values: NDArray[np.float32]  # (thread, second, channel)
    valid: NDArray[np.bool_]  # (thread, second)
    nodes: tuple[str, ...]
    node: NDArray[np.int32]  # (thread,) index into nodes
    cpu: NDArray[np.int32]  # (thread,)
    jobs: tuple[str, ...]
    job: NDArray[np.int32]  # (thread,) index into jobs, -1: no job
    age_s: NDArray[np.int32]  # (thread,) how long the thread has been with this job, or without one
    node_channels: NodeChannels | None = None  # (node, second, channel) as `nodes`; context, not scored

    def __len__(self) -> int:
        return len(self.values)

    @property
    def settled(self) -> NDArray[np.bool_]:
        """(thread,) nothing began or ended within the window of the last 100 s."""
        return self.age_s >= WINDOW_S

    def windows(self, length: int = WINDOW_S) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The last `length` seconds: values (thread, length, channel) and valid (thread, length)."""
        if self.values.shape[1] < length:
            raise SettingsError(f"a moment of {self.values.shape[1]} s has no window of {length} s")
        return self.values[:, -length:], self.valid[:, -length:]

    def take(self, rows: NDArray[np.intp] | slice) -> Moment:
        """The threads of these rows as a moment of their own, of a slice a view; names keep their numbers."""
        columns = {name: getattr(self, name)[rows] for name in ("values", "valid", "node", "cpu", "job", "age_s")}
        return replace(self, **columns)

    def among(self, threads: NDArray[np.intp]) -> tuple[Moment, NDArray[np.intp]]:
        """The smaller moment of these threads and the others of their jobs, and where the threads are in it."""
        chosen = np.isin(self.job, self.job[threads][self.job[threads] >= 0])
        chosen[threads] = True
        rows = np.flatnonzero(chosen)
        return self.take(rows), np.searchsorted(rows, threads)


def moments(
    traces: Sequence[Trace], every_s: int = WINDOW_S, length_s: int = LENGTH_S, first_s: int | None = None
) -> Iterator[tuple[Moment, Windows]]:
    """Recorded traces as the moments a live detector would have seen, each with the labels of its last window.

    A window that holds an onset and yet is more healthy than not is labelled "mixed": finding it is no false alarm.
    """
    from clustertwin.core.windows import describe

    traces = sorted(traces, key=lambda trace: trace.node)
    if not traces:
        return
    schema = traces[0].schema
    if any(trace.schema != schema or trace.interval_s != 1 for trace in traces):
        raise SettingsError("traces of different schemas, or not at 1 Hz, do not make a moment")
    start_s, end_s = min(trace.start_s for trace in traces), max(trace.end_s for trace in traces)
    for now_s in range(start_s + length_s if first_s is None else first_s, end_s + 1, every_s):
        cut = [_cut(trace, now_s, length_s) for trace in traces]
        spans = [span for trace in traces for span in trace.spans]
        moment = assemble(
            now_s, schema, [(t.node, t.cpus, v, m) for t, (v, m) in zip(traces, cut, strict=True)], spans, start_s
        )
        window_s = min(WINDOW_S, length_s)
        labels = []
        for trace, (values, valid) in zip(traces, cut, strict=True):
            last = Trace(
                trace.node,
                trace.cpus,
                now_s - window_s,
                schema,
                values[:, -window_s:],
                valid[:, -window_s:],
                trace.spans,
            )
            labels.append(describe(last, last.values, np.ones_like(last.valid), window_s, window_s))
        yield moment, _mixed_at_onset(Windows.concat(labels), spans, now_s)


def _mixed_at_onset(labels: Windows, spans: Sequence[JobSpan], end_s: int) -> Windows:
    """Healthy windows in which something has just begun to go wrong are neither healthy nor the anomaly's."""
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
    """(node, cpus, values, valid) of each node and the spans of their jobs -> the moment that ends at `end_s`."""
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
    values = np.concatenate([v for *_, v, _ in blocks])
    valid = np.concatenate([m for *_, m in blocks])
    age_s = np.maximum(end_s - np.ceil(since_s), 0).astype(np.int32)
    return Moment(end_s, schema, values, valid, nodes, node, cpu, jobs, job, age_s)


def _cut(trace: Trace, end_s: int, length_s: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The trace's seconds in [end_s - length_s, end_s), invalid where it has none."""
    values = np.zeros((len(trace.cpus), length_s, len(trace.schema)), np.float32)
    valid = np.zeros(values.shape[:2], np.bool_)
    first = end_s - length_s - trace.start_s
    lo, hi = max(first, 0), min(first + length_s, trace.values.shape[1])
    if lo < hi:
        values[:, lo - first : hi - first] = trace.values[:, lo:hi]
        valid[:, lo - first : hi - first] = trace.valid[:, lo:hi]
    values[~valid] = 0
    return values, valid
