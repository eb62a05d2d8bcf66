"""The metric names of each exporter that we read. Those of node channels are in `core.channels`, by the same keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clustertwin.telemetry.ingest.counters import JobCpus

#: More threads than any machine has.
_MAX_CPUS = 1 << 16


@dataclass(frozen=True, slots=True)
class Dialect:
    """One exporter. `cpu` has the labels cpu and mode; `job_cpu` has jobid and cpu, and is empty if there is none."""

    name: str  # its key in `Derivation.series`
    cpu: str
    info: str  # the metric that carries the node's name
    info_label: str
    job_cpu: str = ""


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("twin", "twin_cpu_seconds_total", "twin_node_info", "node", "twin_job_cpu_allocated"),
        Dialect("node", "node_cpu_seconds_total", "node_uname_info", "nodename"),
    )
}


def thread_number(labels: Mapping[str, str]) -> int:
    """The hardware thread of a series; ValueError if its label is not a number."""
    text = labels.get("cpu", "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) < _MAX_CPUS):
        raise ValueError(f"cpu={text[:60]!r} is not a hardware thread")
    return int(text)


def jobs_of(allocations: Iterable[tuple[str, int]]) -> tuple[JobCpus, ...]:
    """(job, thread) pairs -> each job with its threads, in order."""
    cpus: dict[str, list[int]] = {}
    for job, cpu in allocations:
        cpus.setdefault(job, []).append(cpu)
    return tuple(JobCpus(job, tuple(sorted(threads))) for job, threads in sorted(cpus.items()))
