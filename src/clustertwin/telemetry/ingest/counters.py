"""The nouns between sources and rates: a node's counters at one instant (`Reading`), or at many (`Counters`).

Readings come from live sources, one a second; `stack` makes counters of them. Both hold CPU seconds since
boot, as the kernel counts them, with NaN where a thread or a mode was not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import JobSpan

#: The kernel's modes that add up to a thread's time. `guest` and `guest_nice` lie inside `user` and `nice`.
MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


@dataclass(frozen=True, slots=True)
class JobCpus:
    """A job seen on a node at one instant, and the threads it may use."""

    job: str
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One node's counters at one instant."""

    node: str
    time_s: float
    cpus: tuple[int, ...]
    seconds: NDArray[np.float64]  # (cpu, mode)
    modes: tuple[str, ...] = MODES
    memory_used_ratio: float = np.nan
    io_stalled_s: float = np.nan  # time some task waited for I/O, since boot
    jobs: tuple[JobCpus, ...] = ()


@dataclass(frozen=True, slots=True)
class Counters:
    """One node's counters at many instants, as a source gave them: perhaps unordered, doubled or with holes."""

    node: str
    cpus: tuple[int, ...]
    times_s: NDArray[np.float64]  # (time,)
    seconds: NDArray[np.float64]  # (cpu, time, mode)
    modes: tuple[str, ...] = MODES
    memory_used_ratio: NDArray[np.float64] | None = None  # (time,)
    io_stalled_s: NDArray[np.float64] | None = None  # (time,)
    spans: tuple[JobSpan, ...] = field(default=())


def stack(readings: Sequence[Reading]) -> Counters:
    """Readings of one node -> its counters; a thread that was away at an instant is NaN there."""
    if not readings:
        raise ValueError("no readings to stack")
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
        memory_used_ratio=np.array([reading.memory_used_ratio for reading in readings]),
        io_stalled_s=np.array([reading.io_stalled_s for reading in readings]),
        spans=job_spans(readings[0].node, [(reading.time_s, reading.jobs) for reading in readings]),
    )


def job_spans(node: str, sightings: Sequence[tuple[float, Sequence[JobCpus]]]) -> tuple[JobSpan, ...]:
    """Which jobs were seen at which instants, in time order -> one span per job and CPU set.

    A job is taken to have begun at its first sighting and to have ended at the first instant without it
    (at the last one, if it was still there): the truth lies less than a sampling interval away.
    """
    open_s: dict[JobCpus, float] = {}
    spans: list[JobSpan] = []
    time_s = 0.0
    for time_s, jobs in sightings:
        for seen in jobs:
            open_s.setdefault(seen, time_s)
        for gone in open_s.keys() - set(jobs):
            spans.append(JobSpan(gone.job, node, gone.cpus, open_s.pop(gone), time_s))
    spans += [JobSpan(seen.job, node, seen.cpus, start_s, time_s) for seen, start_s in open_s.items()]
    return tuple(sorted(spans, key=lambda span: (span.start_s, span.job, span.cpus)))
