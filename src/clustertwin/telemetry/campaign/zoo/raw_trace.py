"""Turn a raw run into a trace: kernel counters -> the channels of threads, node and job that the exporter would give.

`SERIES` is the only place that knows which raw counters an exported series is made of.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import JOB, NODE, Schema
from clustertwin.core.traces import JobSpan, NodeChannels, Trace
from clustertwin.telemetry.campaign.zoo.raw_run import RawRun, run_name
from clustertwin.telemetry.ingest.counters import MODES, Counters, JobCounters
from clustertwin.telemetry.ingest.rates import to_trace

NODE_NAME = "zoo"
_DISK = r"diskstats/[a-z]+\d*"
_NETWORK = r"dev/(?!lo/)[^/]+"

#: Exported series -> a pattern of raw names, whose values are added up, and the factor to the unit of the series.
SERIES: dict[str, tuple[str, float]] = {
    "twin_memory_available_bytes": (r"meminfo/MemAvailable", 1024),
    "twin_memory_total_bytes": (r"meminfo/MemTotal", 1024),
    **{
        f'twin_pressure_seconds_total{{resource="{resource}",share="some"}}': (rf"pressure/{resource}/some", 1e-6)
        for resource in ("cpu", "memory", "io")
    },
    "twin_tasks_running": (r"stat/procs_running", 1),
    "twin_tasks_blocked": (r"stat/procs_blocked", 1),
    "twin_context_switches_total": (r"stat/ctxt", 1),
    "twin_major_faults_total": (r"vmstat/pgmajfault", 1),
    "twin_swap_pages_total": (r"vmstat/pswp(in|out)", 1),
    "twin_disk_io_seconds_total": (rf"{_DISK}/io_ms", 1e-3),
    "twin_disk_read_bytes_total": (rf"{_DISK}/sectors_read", 512),
    "twin_disk_written_bytes_total": (rf"{_DISK}/sectors_written", 512),
    "twin_network_received_bytes_total": (rf"{_NETWORK}/receive_bytes", 1),
    "twin_network_sent_bytes_total": (rf"{_NETWORK}/transmit_bytes", 1),
    "twin_network_errors_total": (rf"{_NETWORK}/(receive|transmit)_errs", 1),
    "twin_job_cpu_seconds_total": (r"job/v2\.cpu\.stat/(user|system)_usec", 1e-6),
    'twin_job_cpu_seconds_total{mode="system"}': (r"job/v2\.cpu\.stat/system_usec", 1e-6),
    "twin_job_cpu_throttled_seconds_total": (r"job/cpu\.stat/throttled_time", 1e-9),
    **{
        f'twin_job_pressure_seconds_total{{resource="{resource}",share="some"}}': (
            rf"job/v2\.{resource}\.pressure/some",
            1e-6,
        )
        for resource in ("cpu", "memory", "io")
    },
    "twin_job_memory_unreclaimable_bytes": (r"job/memory\.stat/total_(rss|shmem)", 1),
    "twin_job_memory_limit_bytes": (r"job/memory\.limit_in_bytes", 1),
    "twin_job_major_faults_total": (r"job/memory\.stat/total_pgmajfault", 1),
    "twin_job_page_faults_total": (r"job/memory\.stat/total_pgfault", 1),
    "twin_job_read_bytes_total": (r"job/blkio\.throttle\.io_service_bytes/\d+:\d+/Read", 1),
    "twin_job_written_bytes_total": (r"job/blkio\.throttle\.io_service_bytes/\d+:\d+/Write", 1),
    "twin_job_oom_kills_total": (r"job/memory\.oom_control/oom_kill", 1),
}
#: Exported for every hardware thread of a job; the sum is their number.
_ALLOCATED = "twin_job_cpu_allocated"


def series_values(run: RawRun, selector: str) -> NDArray[np.float64]:
    """An exported series of a run: (sample,), NaN where it is unknown or not recorded."""
    if selector == _ALLOCATED:
        return np.full(len(run.times_s), float(len(run.labels["cpus"])))
    pattern, factor = SERIES.get(selector, ("", 1.0))
    parts = [values for name, values in run.values.items() if pattern and re.fullmatch(pattern, name)]
    return factor * np.sum([_from_zero(part) for part in parts], axis=0) if parts else np.full(len(run.times_s), np.nan)


def _from_zero(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A counter of a device appears with the first use of the device, and was 0 before."""
    known = np.flatnonzero(~np.isnan(values))
    return np.where(np.arange(len(values)) < known[0], 0.0, values) if len(known) else values


def operands_of(run: RawRun, schema: Schema) -> NDArray[np.float64]:
    """The operands of every channel of a schema: (sample, channel, operand)."""
    operands = np.full((len(run.times_s), len(schema), 2), np.nan)
    for place, channel in enumerate(schema.channels):
        series = channel.derivation.series.get("twin", ((), ())) if channel.derivation else ((), ())
        for which, selectors in enumerate(series):
            if selectors:
                operands[:, place, which] = np.sum([series_values(run, name) for name in selectors], axis=0)
    return operands


def spans_of(run: RawRun) -> tuple[JobSpan, ...]:
    """The job of a run, cut where a fault begins or ends: every part has one label."""
    labels, cpus = run.labels, tuple(run.labels["cpus"])
    start_s, end_s = float(run.times_s[0]), float(run.times_s[-1])
    name, program = run_name(labels["program"], labels["number"], len(labels["cpus"])), str(labels["program"])
    spans = []
    for imposed in labels["imposed"]:
        if "error" in imposed:
            continue
        onset_s, over_s = float(imposed["onset_s"]), float(imposed["end_s"])
        spans.append(JobSpan(name, NODE_NAME, cpus, start_s, onset_s, program, name=program))
        spans.append(JobSpan(name, NODE_NAME, cpus, onset_s, over_s, program, anomaly=imposed["fault"], name=program))
        start_s = over_s
    return (*spans, JobSpan(name, NODE_NAME, cpus, start_s, end_s, program, name=program))


def trace_of(run: RawRun, keep_shared: bool = False) -> Trace:
    """The trace of the recorded CPUs.

    Where other CPUs of the host carried other work, the channels of the node are mostly those of that work. They are
    unknown unless you keep them.
    """
    cpus = tuple(run.labels["cpus"])
    ticks_per_s = float(run.labels["units"]["ticks_per_s"])
    names = [[f"stat/cpu{cpu}/{mode}" for mode in MODES] for cpu in cpus]
    seconds = np.array([np.stack([run.values[name] for name in row], axis=1) for row in names]) / ticks_per_s
    spans = spans_of(run)
    jobs = JobCounters((spans[0].job,), operands_of(run, JOB)[None])
    trace, _ = to_trace(Counters(NODE_NAME, cpus, run.times_s, seconds, MODES, operands_of(run, NODE), spans, jobs))
    if len(cpus) == run.labels["cpu_count"] or keep_shared or trace.node_channels is None:
        return trace
    unknown = np.full_like(trace.node_channels.values, np.nan)
    return replace(trace, node_channels=NodeChannels(trace.node_channels.schema, unknown))
