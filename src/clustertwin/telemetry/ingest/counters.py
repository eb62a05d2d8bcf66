"""The nouns between sources and rates: a node's counters at one instant (`NodeReading`), or at many (`Counters`).

Live sources give a reading each second; `stack` makes counters of several. Both hold CPU seconds since boot, as the
kernel counts them, with NaN for a thread or a mode that is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import JOB, NODE
from clustertwin.core.formatting import visible
from clustertwin.core.traces import JobSpan

#: The kernel's modes that add up to a thread's time. `guest` and `guest_nice` are part of `user` and `nice`.
MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

#: More hardware threads than any machine with one kernel has. The trace buffer takes 5 KB for each.
NODE_THREADS = 8192
#: The longest name of a node or a job. A host name has at most 253 characters, a Kubernetes pod as many.
NAME_CHARS = 255

#: Jobs times instants of a range whose channels are kept; beyond it they are unknown. Each takes 160 bytes.
MOST_JOB_SAMPLES = 2_000_000

#: The operands of the node channels where nothing is known.
UNKNOWN_OPERANDS: NDArray[np.float64] = np.full((len(NODE), 2), np.nan)
UNKNOWN_OPERANDS.flags.writeable = False


def short_name(name: str, what: str) -> str:
    """The name from a source, as it can be shown; ValueError if it is too long or cannot be written as UTF-8."""
    if len(name) > NAME_CHARS:
        raise ValueError(f"the name of a {what} has {len(name)} characters; the limit is {NAME_CHARS}: {name[:40]!r}…")
    if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(f"the name of a {what} is not Unicode text: {name[:40]!r}")
    return visible(name)


@dataclass(frozen=True, slots=True)
class JobCpus:
    """A job on a node at one instant, and the threads it may use."""

    job: str
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeReading:
    """One node's counters at one instant."""

    node: str
    time_s: float
    cpus: tuple[int, ...]
    seconds: NDArray[np.float64]  # (cpu, mode)
    modes: tuple[str, ...] = MODES
    operands: NDArray[np.float64] = field(default_factory=lambda: UNKNOWN_OPERANDS)  # (channel of NODE, operand)
    jobs: tuple[JobCpus, ...] = ()
    job_operands: NDArray[np.float64] | None = None  # (job, channel of JOB, operand), as `jobs`; None: all unknown


@dataclass(frozen=True, slots=True)
class JobCounters:
    """The operands of the channels of a node's jobs at many instants."""

    jobs: tuple[str, ...]
    operands: NDArray[np.float64]  # (job, time, channel of JOB, operand)


@dataclass(frozen=True, slots=True)
class Counters:
    """One node's counters at many instants, as a source gives them: perhaps unordered, doubled or with gaps."""

    node: str
    cpus: tuple[int, ...]
    times_s: NDArray[np.float64]  # (time,)
    seconds: NDArray[np.float64]  # (cpu, time, mode)
    modes: tuple[str, ...] = MODES
    operands: NDArray[np.float64] | None = None  # (time, channel of NODE, operand); None: all unknown
    spans: tuple[JobSpan, ...] = field(default=())
    job_counters: JobCounters | None = None  # None: all unknown


def stack(readings: Sequence[NodeReading]) -> Counters:
    """Readings of one node -> its counters; NaN where a thread was missing."""
    if not readings:
        raise ValueError("there are no readings to stack")
    modes = tuple(mode for mode in readings[0].modes if all(mode in reading.modes for reading in readings))
    cpus = tuple(sorted({cpu for reading in readings for cpu in reading.cpus}))
    row = {cpu: i for i, cpu in enumerate(cpus)}
    seconds = np.full((len(cpus), len(readings), len(modes)), np.nan)
    for k, reading in enumerate(readings):
        columns = [reading.modes.index(mode) for mode in modes]
        seconds[[row[cpu] for cpu in reading.cpus], k] = reading.seconds[:, columns]
    return Counters(
        node=readings[0].node,
        cpus=cpus,
        times_s=np.array([reading.time_s for reading in readings]),
        seconds=seconds,
        modes=modes,
        operands=np.array([reading.operands for reading in readings]),
        spans=job_spans(readings[0].node, [(reading.time_s, reading.jobs) for reading in readings]),
        job_counters=_stack_jobs(readings),
    )


def _stack_jobs(readings: Sequence[NodeReading]) -> JobCounters | None:
    jobs = dict.fromkeys(job.job for reading in readings if reading.job_operands is not None for job in reading.jobs)
    if not jobs or len(jobs) * len(readings) > MOST_JOB_SAMPLES:
        return None
    row = {job: i for i, job in enumerate(jobs)}
    operands = np.full((len(row), len(readings), len(JOB), 2), np.nan)
    for k, reading in enumerate(readings):
        if reading.job_operands is not None:
            operands[[row[job.job] for job in reading.jobs], k] = reading.job_operands
    return JobCounters(tuple(row), operands)


def job_spans(node: str, sightings: Sequence[tuple[float, Sequence[JobCpus]]]) -> tuple[JobSpan, ...]:
    """The jobs at each instant, in time order -> one span for each job and CPU set.

    A span starts at the first instant with the job and ends at the first instant without it, or at the last instant
    of all. The true times differ from these by less than a sampling interval.
    """
    start_s: dict[JobCpus, float] = {}
    spans: list[JobSpan] = []
    time_s = 0.0
    for time_s, jobs in sightings:
        for job in jobs:
            start_s.setdefault(job, time_s)
        for ended in start_s.keys() - set(jobs):
            spans.append(JobSpan(ended.job, node, ended.cpus, start_s.pop(ended), time_s))
    spans += [JobSpan(job.job, node, job.cpus, begin_s, time_s) for job, begin_s in start_s.items()]
    return tuple(sorted(spans, key=lambda span: (span.start_s, span.job, span.cpus)))
