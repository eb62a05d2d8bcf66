"""Channels of harm for a simulated cluster: labelled traces, seed -> the same traces with channels of nodes and jobs.

Nothing of the threads' own seconds changes. What a thread shows already (CPU time, waits for I/O) is taken from it.
What it cannot show follows from the label: who else used the thread, which tasks waited, how much memory was taken.
Memory is not recorded with the signatures. A healthy job has one of four shapes, and a leak fills the job's memory at
the end of the job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import JOB, NODE, Schema
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace
from clustertwin.telemetry.simulation.signature import PEER

_OF_NODE = [
    "memory_used",
    "cpu_pressure",
    "memory_pressure",
    "io_pressure",
    "run_queue",
    "swap_traffic",
    "disk_traffic",
]
NODE_CHANNELS = Schema(tuple(channel for channel in NODE.channels if channel.name in _OF_NODE))
JOB_CHANNELS = Schema(
    tuple(
        channel
        for channel in JOB.channels
        if channel.name not in ("job_major_faults", "job_page_faults", "job_oom_kills")
    )
)

_NODE_MEMORY = 1.25  # of what jobs on all threads may use together
_SYSTEM_MEMORY = 0.05  # of the node
_QUEUED = 0.01  # mean number of tasks of a healthy job that wait for a CPU
_WRITTEN, _DISK = 50e6, 500e6  # bytes per second: of a thread of good-io, and of a disk at most
_SLOW_DISK = 1e6  # bytes per second: bad and slow I/O stand for a disk that hardly answers
_THREAD_MEMORY = 4e9  # bytes that a job may use for each of its threads
_PAGES = 4000.0  # swapped in a second that is all paging

Series = NDArray[np.floating]  # (second,)
Shape = Callable[[int, np.random.Generator], Series]  # seconds, rng -> level


@dataclass(frozen=True, slots=True)
class _JobSeconds:
    """One job on one node."""

    job: str
    seconds: slice  # of the trace
    values: NDArray[np.float32]  # (thread, second, channel)
    kind: str  # its fault, or else its type
    afflicted: NDArray[np.bool_]  # (thread, second) where its fault shows


def with_harm_channels(traces: Sequence[Trace], seed: int) -> list[Trace]:
    """The traces with the channels that our exporter has on a node and for its jobs."""
    return [_with_channels(trace, np.random.default_rng((seed, 4, number))) for number, trace in enumerate(traces)]


def _with_channels(trace: Trace, rng: np.random.Generator) -> Trace:
    jobs = tuple(dict.fromkeys(span.job for span in trace.spans))
    threads, seconds = trace.values.shape[:2]
    of_jobs = np.full((len(jobs), seconds, len(JOB_CHANNELS)), np.nan, np.float32)
    node = {name: np.zeros(seconds, np.float32) for name in NODE_CHANNELS.names}
    tasks = trace.values[:, :, :2].sum(2).sum(0)  # (second,) that run
    for row, job in enumerate(jobs):
        part = _seconds_of(trace, [span for span in trace.spans if span.job == job])
        queued, shares = _measure(part, rng)
        of_jobs[row, part.seconds] = np.stack([shares[name] for name in JOB_CHANNELS.names], axis=1)
        tasks[part.seconds] += queued
        share = len(part.values) / threads / _NODE_MEMORY
        node["memory_used"][part.seconds] += shares["job_memory"] * share
        rate = shares["job_io_traffic"] / (1 - shares["job_io_traffic"])
        node["disk_traffic"][part.seconds] += rate  # as a rate until all jobs are added up
        node["swap_traffic"][part.seconds] += _PAGES / 1000 * shares["job_memory_pressure"]
        for name in ("cpu_pressure", "memory_pressure", "io_pressure"):
            node[name][part.seconds] = np.maximum(node[name][part.seconds], shares[f"job_{name}"])
    for name in ("disk_traffic", "swap_traffic"):
        node[name] = node[name] / (1 + node[name])
    node["memory_used"] += np.float32(_SYSTEM_MEMORY)
    node["run_queue"] = tasks / (tasks + threads)
    of_node = np.stack([node[name] for name in NODE_CHANNELS.names], axis=1).astype(np.float32)
    return replace(
        trace, node_channels=NodeChannels(NODE_CHANNELS, of_node), job_channels=JobChannels(JOB_CHANNELS, jobs, of_jobs)
    )


def _seconds_of(trace: Trace, spans: Sequence[JobSpan]) -> _JobSeconds:
    """The seconds of a job, from its spans: one for each label of its threads."""
    first = spans[0]
    begin, end = int(first.start_s) - trace.start_s, int(first.end_s) - trace.start_s
    rows, afflicted = [], []
    for span in spans:
        onset = 0 if span.onset_s is None else int(span.onset_s - span.start_s)
        shows = bool(span.anomaly) and not span.anomaly.endswith(PEER)
        rows += [trace.cpus.index(cpu) for cpu in span.cpus]
        afflicted += [shows & (np.arange(end - begin) >= onset)] * len(span.cpus)
    kind = next((span.anomaly.removesuffix(PEER) for span in spans if span.anomaly), first.job_type)
    return _JobSeconds(first.job, slice(begin, end), trace.values[rows, begin:end], kind, np.stack(afflicted))


def _measure(part: _JobSeconds, rng: np.random.Generator) -> tuple[Series, dict[str, Series]]:
    """The tasks of a job that wait for a CPU, and the channels of its cgroup."""
    user, system, iowait, idle = (part.values[:, :, i] for i in range(4))  # (thread, second)
    busy, count, seconds = user + system, len(part.values), user.shape[1]
    where = part.afflicted

    def only(fault: str, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """(thread, second) the values while this fault shows, 0 elsewhere."""
        return np.where(where, values, 0) if part.kind == fault else np.zeros_like(values)

    foreign = only("noisy-neighbour", busy / 2)  # two tasks take turns
    stopped = only("throttled", idle)
    paging = only("swap-bursts", system + iowait).mean(0)
    # All ranks want the one thread that works: all but one of them wait.
    sharing = (count - 1) * only("misbound", busy).max(0)
    queued = foreign.sum(0) + sharing + rng.exponential(_QUEUED, seconds)
    own, memory = busy - foreign, _memory_of(part, rng)
    written = min(_WRITTEN * count, _DISK) if part.kind == "good-io" else 0.0
    written = _SLOW_DISK if part.kind in ("bad-io", "slow-io") else written
    # Input that is loaded is read from a disk.
    loaded = np.diff(memory.steady, prepend=memory.steady[0]) * _THREAD_MEMORY * count
    rate = np.minimum(written + np.maximum(loaded, 0) * memory.is_input, _DISK)
    shares = {
        "job_cpu": own.mean(0),
        "job_system": system.sum(0) / np.maximum(busy.sum(0), 1e-6),
        "job_cpu_pressure": np.minimum(queued + stopped.sum(0), 1),
        "job_memory_pressure": paging,
        "job_io_pressure": iowait.max(0),
        "job_throttled": stopped.mean(0),
        "job_memory": np.clip(memory.steady + rng.normal(0, 0.0005, seconds), 0, 1),
        "job_io_traffic": rate / (rate + 100e6),
    }
    return queued.astype(np.float32), {name: values.astype(np.float32) for name, values in shares.items()}


class _Memory(NamedTuple):
    """The memory of a job as a part of its limit, without noise."""

    steady: Series
    is_input: bool  # it was read from a disk


def _memory_of(part: _JobSeconds, rng: np.random.Generator) -> _Memory:
    """A leak adds what is left, evenly, until the end of the job."""
    shape = _SHAPES[int(rng.integers(len(_SHAPES)))]
    level = shape(part.values.shape[1], rng)
    leaking = part.afflicted.any(0) & (part.kind == "memory-leak")
    if leaking.any():
        level = level + (1 - level) * np.cumsum(leaking) / leaking.sum()
    return _Memory(level, shape is _loads and not leaking.any())


def _at_once(seconds: int, rng: np.random.Generator) -> Series:
    """Takes its memory in its first minute and keeps it."""
    return rng.uniform(0.1, 0.9) * np.minimum(np.arange(seconds) / rng.uniform(2, 60), 1)


def _in_steps(seconds: int, rng: np.random.Generator) -> Series:
    """Takes more at a few times."""
    times = np.sort(rng.uniform(0, seconds, 4))
    return 0.1 + rng.uniform(0.02, 0.12) * np.searchsorted(times, np.arange(seconds), "right")


def _fills_and_frees(seconds: int, rng: np.random.Generator) -> Series:
    """A garbage collector: a sawtooth."""
    base, height, period = rng.uniform(0.1, 0.4), rng.uniform(0.01, 0.2), rng.uniform(20, 200)
    return base + height * (np.arange(seconds) / period % 1)


def _loads(seconds: int, rng: np.random.Generator) -> Series:
    """Reads its input for up to a fifth of its time, and then computes on it."""
    return 0.05 + rng.uniform(0.1, 0.8) * np.minimum(np.arange(seconds) / (rng.uniform(0.02, 0.2) * seconds), 1)


_SHAPES: tuple[Shape, ...] = (_at_once, _in_steps, _fills_and_frees, _loads)
