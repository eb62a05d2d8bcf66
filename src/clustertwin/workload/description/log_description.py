"""Summary statistics of a log: sizes, run times, limits, submissions by hour and weekday, users and offered load."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.fidelity.measures.arrivals import by_hour, by_weekday
from clustertwin.workload.fidelity.measures.concurrency import submits_are_starts
from clustertwin.workload.fidelity.measures.offered_load import Capacity, capacity, offered_load
from clustertwin.workload.fidelity.measures.user_behaviour import gini
from clustertwin.workload.jobs import Jobs, Status

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MEASURED = {"interval_s": "interval", "wait_s": "wait", "run_s": "run time", "request_s": "limit", "nodes": "nodes",
            "cpus": "cpus", "gpus": "gpus", "memory_bytes": "memory"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColumnSpread:
    """Mean, extremes and quantiles of a column over the jobs with a known value."""

    known: int
    mean: float
    least: float
    quantiles: tuple[float, ...]  # at QUANTILES
    most: float


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How the jobs use GPUs. `load` is None if the number of GPUs is not known."""

    job_share: float  # of the jobs
    largest_job: int
    gpu_hours: float
    machine: int | None
    load: float | None


@dataclass(frozen=True, slots=True)
class LogDescription:
    jobs: int
    first: str  # ISO time of the first submission; "" if the log has no date
    last: str
    span_s: float
    machine: Capacity
    offered_load: float
    columns: dict[str, ColumnSpread]
    status: dict[str, float]  # share of jobs
    users: int
    groups: int
    user_gini: float
    top_users: dict[str, float]  # share of jobs
    by_hour: tuple[float, ...]  # (24,) share of submissions
    by_weekday: tuple[float, ...]  # (7,) share of submissions, Monday first
    machine_source: str  # where the size of the machine comes from: given, stated by the log, or its largest job
    gpus: GpuUse | None  # None if no job has GPUs
    submits_are_starts: bool  # no job waited, and all jobs fit the machine when they are submitted


def describe(jobs: Jobs, procs: int | None = None, gpus: int | None = None) -> LogDescription:
    """Describe a log on a machine of `procs` (default: the size that the log states, or its largest job)."""
    on = capacity(jobs, procs)
    columns = {}
    for name in MEASURED:
        values = np.asarray(getattr(jobs, name), dtype=np.float64)
        # The first job follows none; its interval of 0 is no interval.
        values = values[1:] if name == "interval_s" else values[values >= 0]
        if len(values) and np.any(values != 0):
            columns[name] = spread(values)
    users, counts = np.unique(jobs.user, return_counts=True)
    busiest = np.argsort(-counts, kind="stable")[:5]
    return LogDescription(
        len(jobs), _moment(jobs, 0), _moment(jobs, -1), float(jobs.submit_s[-1] - jobs.submit_s[0]), on,
        offered_load(jobs, on), columns, {word: share for word, share in _status(jobs) if share},
        int((users >= 0).sum()), len(np.unique(jobs.group[jobs.group >= 0])), gini(counts),
        {_name(jobs, int(users[i])): float(counts[i] / len(jobs)) for i in busiest},
        tuple(by_hour(jobs).tolist()), tuple(by_weekday(jobs).tolist()),
        _size_source(jobs, on, procs), gpu_use(jobs, gpus), submits_are_starts(jobs, on),
    )  # fmt: skip


def gpu_use(jobs: Jobs, machine: int | None = None) -> GpuUse | None:
    """The GPUs of a log. Without `machine`, their number is what the log states for its nodes, if it does."""
    if not np.any(jobs.gpus > 0):
        return None
    machine = machine or jobs.machine.nodes * jobs.machine.gpus_per_node or None
    used = np.maximum(jobs.gpus, 0)
    seconds = float((used * np.maximum(jobs.run_s, 0)).sum())
    span_s = float(jobs.submit_s[-1] - jobs.submit_s[0])
    load = seconds / (machine * span_s) if machine and span_s > 0 else None
    return GpuUse(float(np.mean(used > 0)), int(used.max()), seconds / 3600, machine, load)


def _size_source(jobs: Jobs, on: Capacity, procs: int | None) -> str:
    if procs is not None:
        return "given"
    stated = jobs.machine.nodes if on.unit == "nodes" else jobs.machine.cpus or jobs.machine.nodes
    return "stated by the log" if stated == on.procs else "its largest job"


def spread(values: NDArray[np.float64]) -> ColumnSpread:
    quantiles = tuple(float(value) for value in np.quantile(values, QUANTILES))
    return ColumnSpread(len(values), float(values.mean()), float(values.min()), quantiles, float(values.max()))


def running(jobs: Jobs, on: Capacity, bins: int = 150) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(bins,) bin centres in seconds, and the mean share of the machine in use; an unknown wait counts as 0."""
    start_s = jobs.submit_s + np.maximum(jobs.wait_s, 0)
    end_s = start_s + np.maximum(jobs.run_s, 0)
    size = np.maximum(getattr(jobs, on.unit), 0).astype(np.float64)
    edges = np.linspace(float(jobs.submit_s[0]), max(float(end_s.max()), float(jobs.submit_s[0]) + 1), bins + 1)
    work = _ramp(start_s, size, edges) - _ramp(end_s, size, edges)  # processor seconds done by each edge
    return (edges[1:] + edges[:-1]) / 2, np.diff(work) / np.diff(edges) / on.procs


def _ramp(from_s: NDArray[np.float64], size: NDArray[np.float64], at_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """At each time t, the sum of size * (t - from) over the jobs with from <= t."""
    order = np.argsort(from_s)
    begun = np.searchsorted(from_s[order], at_s, side="right")
    sizes = np.concatenate([[0.0], np.cumsum(size[order])])[begun]
    moments = np.concatenate([[0.0], np.cumsum((size * from_s)[order])])[begun]
    return np.asarray(sizes * at_s - moments)


def short(value: float, column: str) -> str:
    """A number for a narrow table: 90 s, 12 min, 3.4 h, 2.1 d; 16 GB; 4,392.

    >>> short(7200, "run_s"), short(2**34, "memory_bytes")
    ('2 h', '16 GB')
    """
    if column.endswith("_s"):
        for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
            if value >= 2 * size:
                return f"{value / size:.3g} {unit}"
        return f"{value:.3g} s"
    if column.endswith("_bytes"):
        return f"{value / 2**30:.3g} GB"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _status(jobs: Jobs) -> list[tuple[str, float]]:
    return [(status.name.lower(), float(np.mean(jobs.status == status))) for status in Status]


def _name(jobs: Jobs, code: int) -> str:
    if code < 0:
        return "unknown"
    return jobs.names["user"][code] if "user" in jobs.names else str(code)


def _moment(jobs: Jobs, i: int) -> str:
    if not jobs.epoch_s:
        return ""
    moment = datetime.fromtimestamp(jobs.epoch_s + float(jobs.submit_s[i]), UTC)
    return moment.astimezone(ZoneInfo(jobs.timezone)).isoformat(timespec="seconds")
