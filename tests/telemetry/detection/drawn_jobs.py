"""Jobs drawn by hand, with the channels of their cgroup: phases -> a trace, and what the questions would page for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU, JOB, NODE, Schema
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace
from clustertwin.telemetry.detection.forecast.memory_watch import MemoryWatch
from clustertwin.telemetry.detection.questions.assess import assess
from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer

Shares = tuple[float, float, float]  # user, system, iowait
JOB_NAMES = ("job_cpu", "job_system", "job_cpu_pressure", "job_io_pressure", "job_memory_pressure", "job_throttled",
             "job_memory", "job_io_traffic", "job_page_faults")  # fmt: skip
NODE_NAMES = (
    "memory_used",
    "cpu_pressure",
    "io_pressure",
    "run_queue",
    "disk_traffic",
    "network_traffic",
    "swap_traffic",
    "steal",
)


@dataclass(frozen=True, slots=True)
class Phase:
    """A number holds for all seconds of the phase; `memory` goes evenly from its first number to its second."""

    seconds: int
    shares: Shares | Sequence[Shares]  # of what the job does: all threads alike, or each
    memory: tuple[float, float] = (0.3, 0.3)
    disk: float = 0.0  # MB/s of the job
    network: float = 0.0  # MB/s of the node
    others: float | Sequence[float] = 0.0  # of the time of each thread, taken by other work
    queued: float = 0.005  # part of the time in which a task of the job waits for a CPU
    throttled: float = 0.0
    tasks_waiting: float = 0.0  # of the node
    other_disk: float = 0.0  # MB/s of other work
    swap: float = 0.0  # pages per second of the node
    memory_waits: float = 0.0  # part of the time in which a task of the job waits for memory
    page_faults: float = np.nan  # of the job, as its channel; NaN: unknown
    steal: float = 0.0  # of the node; it is part of the time in which its threads do not work


def draw(phases: Sequence[Phase], threads: int, seed: int = 0, node_threads: int = 0, writer: bool = False) -> Trace:
    """One job on the first threads of a node. Shares jitter by 2 points, and the node's daemons run now and then.

    `writer`: what other work reads and writes is known to be that of a job on the other threads.
    """
    rng = np.random.default_rng(seed)
    parts = [_draw_phase(phase, threads, rng) for phase in phases]
    values, of_job, of_node = (np.concatenate(arrays, axis=-2) for arrays in zip(*parts, strict=True))
    length, all_threads = values.shape[1], max(node_threads, threads)
    free = np.zeros((all_threads - threads, length, 4), np.float32)
    free[..., 3] = 1
    values = np.concatenate([values, free])
    busy = values[..., :2].sum(2).sum(0)
    running = busy + of_node[:, 3]  # tasks that run and that wait
    of_node[:, 3] = running / (running + all_threads)
    node = NodeChannels(Schema(tuple(c for n in NODE_NAMES for c in NODE.channels if c.name == n)), of_node)
    job = JobChannels(Schema(tuple(c for n in JOB_NAMES for c in JOB.channels if c.name == n)), ("j",), of_job[None])
    spans = [JobSpan("j", "n1", tuple(range(threads)), 0, length)]
    if writer:
        spans.append(JobSpan("writer", "n1", tuple(range(threads, all_threads)), 0, length))
        written = np.concatenate([_saturating(np.full(phase.seconds, phase.other_disk), 100) for phase in phases])
        of_writer = np.full((1, *of_job.shape), np.nan, np.float32)
        of_writer[..., JOB_NAMES.index("job_io_traffic")] = written
        job = replace(job, jobs=("j", "writer"), values=np.concatenate([job.values, of_writer]))
    valid = np.ones(values.shape[:2], np.bool_)
    cpus = tuple(range(all_threads))
    return Trace("n1", cpus, 0, CPU, values, valid, tuple(spans), node_channels=node, job_channels=job)


def _draw_phase(
    phase: Phase, threads: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """(thread, second, 4), (second, channel of the job), (second, channel of the node)."""
    n = phase.seconds
    own = np.broadcast_to(np.array(phase.shares, np.float64), (threads, 3))[:, None].repeat(n, 1)
    own = np.clip(own + rng.normal(0, 0.02, own.shape) * np.sqrt(own), 0, 1)
    own /= np.maximum(own.sum(-1, keepdims=True), 1)
    others = np.broadcast_to(np.array(phase.others, np.float64), (threads,))[:, None].repeat(n, 1)
    others = others + (rng.random((threads, n)) < 0.01) * rng.uniform(0, 0.3, (threads, n))
    used = own[..., :2].sum(-1)
    # Other work takes the idle time first, and then as much as it wants, at most half of the thread.
    taken = np.minimum(others, np.maximum(1 - own.sum(-1), 0.5))
    room = 1 - taken
    scale = np.minimum(1, room / np.maximum(own.sum(-1), 1e-9))
    own *= scale[..., None]
    values = np.concatenate([own, np.zeros((threads, n, 1))], -1)
    values[..., 0] += taken
    values[..., 3] = np.clip(1 - values.sum(-1), 0, 1)
    lost = np.clip(used - own[..., :2].sum(-1), 0, 1).max(0)
    cpu = own[..., :2].sum(-1)
    queued = np.minimum(phase.queued + lost + rng.exponential(0.003, n), 1)
    memory = np.linspace(*phase.memory, n) + rng.normal(0, 0.0004, n)
    own_disk = _saturating(np.full(n, phase.disk), 100)
    system, waits = own[..., 1].sum(0) / np.maximum(cpu.sum(0), 1e-6), own[..., 2].max(0)
    throttled = np.full(n, phase.throttled)
    memory_waits, page_faults = np.full(n, phase.memory_waits), np.full(n, phase.page_faults)
    of_job = np.stack([cpu.mean(0), system, queued, waits, memory_waits, throttled, memory, own_disk, page_faults], 1)
    disks = _saturating(np.full(n, phase.disk + phase.other_disk), 100)
    network, tasks = _saturating(np.full(n, phase.network), 125), np.full(n, phase.tasks_waiting) + lost
    swapped = _saturating(np.full(n, phase.swap), 1000)
    of_node = np.stack([0.1 + 0.5 * memory, queued, waits, tasks, disks, network, swapped, np.full(n, phase.steal)], 1)
    return values.astype(np.float32), of_job.astype(np.float32), of_node.astype(np.float32)


def _saturating(rate: NDArray[np.float64], half: float) -> NDArray[np.float64]:
    return rate / (rate + half)


def on_node(trace: Trace, node: str) -> Trace:
    """The same job on another node."""
    return replace(trace, node=node, spans=tuple(replace(span, node=node) for span in trace.spans))


def _cut(trace: Trace, seconds: slice) -> Trace:
    nodes, jobs = trace.node_channels, trace.job_channels
    assert nodes is not None
    assert jobs is not None
    return replace(
        trace,
        start_s=seconds.start,
        values=trace.values[:, seconds],
        valid=trace.valid[:, seconds],
        node_channels=replace(nodes, values=nodes.values[seconds]),
        job_channels=replace(jobs, values=jobs.values[:, seconds]),
    )


def pages(*traces: Trace, every_s: int = 10) -> dict[str, int]:
    """Cause -> the second in which its finding has held long enough for an event. A trace for each node of the job."""
    memory, watch, buffer, out = QuestionMemory(), MemoryWatch(), TraceBuffer(CPU), {}
    for now_s in range(every_s, traces[0].end_s + 1, every_s):
        for trace in traces:
            buffer.push(_cut(trace, slice(now_s - every_s, now_s)))
        moment = buffer.moment(now_s)
        scores = _significant(moment)
        for finding in assess(moment, scores, memory, 3.0, forecasts=watch.forecast(moment)).findings:
            if finding.job == "j" and finding.opens_event and finding.held(now_s):
                out.setdefault(finding.cause, now_s)
    return out


def _significant(moment: Moment) -> Scores:
    """The peers view finds every deviation significant: the floors of the rules must hold without its help."""
    n = len(moment)
    surprise = np.full((n, 1), 9.0, np.float32)
    return Scores(np.full(n, 1.0, np.float32), surprise, ("peers",), np.zeros(n, np.float32), np.zeros((n, 2)))
