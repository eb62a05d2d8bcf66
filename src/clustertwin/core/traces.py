"""The nouns of telemetry: a node's `Trace`, the `JobSpan`s that ran on it, and `Windows` cut from traces."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import SPREAD, Schema


@dataclass(frozen=True, slots=True)
class JobSpan:
    """One job on one node: its threads, its time, and its labels from a person or a campaign."""

    job: str
    node: str
    cpus: tuple[int, ...]
    start_s: float
    end_s: float
    job_type: str = ""
    owner: str = ""
    anomaly: str = ""  # empty: normal
    onset_s: float | None = None  # when the anomaly began; None: with the job
    name: str = ""  # of the job or its program, if the source knows it
    user: str = ""  # the owner's login, if the source knows it
    account: str = ""  # that the job is charged to, if the source knows it


@dataclass(frozen=True, slots=True)
class NodeChannels:
    """Channels of nodes, not of threads: memory in use, pressure. Each value is in [0, 1], or NaN where unknown."""

    schema: Schema
    values: NDArray[np.float32]  # (time, channel) of one node; (node, time, channel) of several


@dataclass(frozen=True, slots=True)
class JobChannels:
    """Channels of the jobs on one node, from their cgroups. Each value is in [0, 1], or NaN where unknown."""

    schema: Schema
    jobs: tuple[str, ...]
    values: NDArray[np.float32]  # (job, time, channel)


@dataclass(frozen=True, slots=True)
class Trace:
    """One node's hardware threads at a fixed cadence. Where `valid` is False, `values` have no meaning."""

    node: str
    cpus: tuple[int, ...]
    start_s: int  # epoch second of values[:, 0]
    schema: Schema
    values: NDArray[np.float32]  # (cpu, time, channel), each in [0, 1]
    valid: NDArray[np.bool_]  # (cpu, time)
    spans: tuple[JobSpan, ...] = ()
    interval_s: int = 1
    node_channels: NodeChannels | None = None  # None: the source has none
    job_channels: JobChannels | None = None  # None: the source has none

    @property
    def end_s(self) -> int:
        return self.start_s + self.values.shape[1] * self.interval_s


def check_trace(trace: Trace) -> None:
    """Raise ValueError if the arrays do not fit its threads, or if the node or a job has no name.

    Beside the name of a node, the empty name of a job stands for the whole node, or for its threads without a job.
    """
    shape = len(trace.cpus), trace.values.shape[1] if trace.values.ndim == 3 else -1, len(trace.schema)
    if trace.values.shape != shape or trace.valid.shape != shape[:2]:
        raise ValueError(f"values {trace.values.shape} and valid {trace.valid.shape} do not fit {shape[0]} threads")
    if any(a >= b for a, b in pairwise(trace.cpus)):
        raise ValueError("its threads are not in order")
    jobs = (*(span.job for span in trace.spans), *(trace.job_channels.jobs if trace.job_channels else ()))
    if not trace.node or not all(jobs):
        raise ValueError("the node or one of its jobs has no name")


def spread_node_channels(trace: Trace) -> Trace:
    """The trace with the node channels of `SPREAD` as channels of every thread, for models that learn from them.

    A second in which one of them is unknown becomes invalid.
    """
    if trace.node_channels is None:
        return trace
    names = trace.node_channels.schema.names
    schema = Schema(tuple(channel for channel in SPREAD.channels if channel.name in names))
    node_values = trace.node_channels.values[:, [names.index(name) for name in schema.names]]  # (time, channel)
    valid = trace.valid & ~np.isnan(node_values).any(axis=1)
    wide = np.broadcast_to(node_values, (*valid.shape, node_values.shape[1]))
    values = np.concatenate([trace.values, wide], axis=2)
    values[~valid] = 0
    return replace(trace, schema=trace.schema + schema, values=values, valid=valid, node_channels=None)


def gather_node_channels(trace: Trace) -> Trace:
    """The inverse: channels of nodes that every thread carries are taken from the threads."""
    nodes = trace.schema.of_scope("node")
    if not len(nodes):
        return trace
    threads = trace.schema.of_scope("thread")
    columns = [trace.schema.index(name) for name in nodes.names]
    first = trace.valid.argmax(axis=0)  # (time,) a thread that is valid: all threads agree
    node_values = trace.values[first, np.arange(len(first))][:, columns]
    node_values[~trace.valid.any(axis=0)] = np.nan
    return replace(
        trace,
        schema=threads,
        values=trace.values[:, :, [trace.schema.index(name) for name in threads.names]],
        node_channels=NodeChannels(nodes, node_values),
    )


@dataclass(frozen=True, slots=True)
class Windows:
    """n windows as columns. Order is node, cpu, start; `campaign` and `split` are empty outside campaigns."""

    schema: Schema
    values: NDArray[np.float32]  # (n, length, channel)
    valid: NDArray[np.bool_]  # (n, length)
    start_s: NDArray[np.int64]  # (n,)
    node: NDArray[np.str_]  # (n,)
    cpu: NDArray[np.int32]  # (n,)
    job: NDArray[np.str_]  # (n,) empty: no job
    job_type: NDArray[np.str_]  # (n,) "idle" where no job ran, "mixed" where the window straddles jobs
    anomaly: NDArray[np.str_]  # (n,) empty: normal
    campaign: NDArray[np.str_]  # (n,)
    split: NDArray[np.str_]  # (n,) train, validation or test
    interval_s: int = field(default=1)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Windows:
        """The windows chosen by a mask or by indices."""
        return replace(self, **{name: getattr(self, name)[which] for name in _COLUMNS})

    @staticmethod
    def concat(parts: list[Windows]) -> Windows:
        """All windows of several, which share a schema and a length."""
        first = parts[0]
        if any(part.schema != first.schema or part.interval_s != first.interval_s for part in parts):
            raise ValueError("windows of different schemas or cadences cannot be joined")
        joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        return replace(first, **joined)


_COLUMNS = tuple(f.name for f in fields(Windows) if f.name not in ("schema", "interval_s"))
