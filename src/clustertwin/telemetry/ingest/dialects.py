"""What each exporter calls the counters we read: a visible table of metric names and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clustertwin.telemetry.ingest.counters import JobCpus

#: More threads than any machine has; a label above it is not a thread.
_MOST_CPUS = 1 << 16


@dataclass(frozen=True, slots=True)
class Dialect:
    """One exporter's names. `cpu` has the labels cpu and mode; `job_cpu` has jobid and cpu, or is empty."""

    cpu: str
    info: str  # the metric that knows the node's name
    info_label: str
    memory_total: str
    memory_available: str
    io_stalled: str
    io_stalled_labels: tuple[tuple[str, str], ...] = ()
    job_cpu: str = ""


DIALECTS: dict[str, Dialect] = {
    "twin": Dialect(
        cpu="twin_cpu_seconds_total",
        info="twin_node_info",
        info_label="node",
        memory_total="twin_memory_total_bytes",
        memory_available="twin_memory_available_bytes",
        io_stalled="twin_pressure_seconds_total",
        io_stalled_labels=(("resource", "io"), ("share", "some")),
        job_cpu="twin_job_cpu_allocated",
    ),
    "node": Dialect(
        cpu="node_cpu_seconds_total",
        info="node_uname_info",
        info_label="nodename",
        memory_total="node_memory_MemTotal_bytes",
        memory_available="node_memory_MemAvailable_bytes",
        io_stalled="node_pressure_io_waiting_seconds_total",
    ),
}


def thread_number(labels: Mapping[str, str]) -> int:
    """The hardware thread a series is about; ValueError where its label is no number."""
    text = labels.get("cpu", "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) < _MOST_CPUS):
        raise ValueError(f"cpu={text[:60]!r} is no hardware thread")
    return int(text)


def jobs_of(allocations: Iterable[tuple[str, int]]) -> tuple[JobCpus, ...]:
    """(job, thread) pairs -> each job with its threads, in order."""
    cpus: dict[str, list[int]] = {}
    for job, cpu in allocations:
        cpus.setdefault(job, []).append(cpu)
    return tuple(JobCpus(job, tuple(sorted(own))) for job, own in sorted(cpus.items()))
