"""The report of a job: how its threads spent their time -> bars, and notes that name the Slurm directive to change.

For a running job it covers the last five minutes; for a recorded job, its whole time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.service.live.snapshot import Snapshot
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.recording.trace_archive import TraceArchive

WIDTH = 78
IDLE = 0.05  # a thread that is busy for a smaller share of its time counts as idle
MOST_ROWS = 24


@dataclass(frozen=True, slots=True)
class JobUsage:
    """How each thread of a job spent its time; NaN if there is no data."""

    job: str
    owner: str
    threads: tuple[tuple[str, int], ...]  # (node, cpu)
    channels: tuple[str, ...]
    means: NDArray[np.float64]  # (thread, channel)
    start_s: float
    end_s: float
    running: bool

    @property
    def busy(self) -> NDArray[np.float64]:
        """(thread,) the share of time that is not `other`."""
        return 1 - self.means[:, self.channels.index("other")]


def usage_now(snapshot: Snapshot, job: str) -> JobUsage | None:
    """The usage of a running job; None if no such job is running."""
    moment = snapshot.moment
    if moment is None or job not in moment.jobs:
        return None
    rows = np.flatnonzero(moment.job == moment.jobs.index(job))
    length_s = moment.values.shape[1]
    in_job = np.arange(length_s, 0, -1) <= moment.age_s[rows, None]  # (thread, second)
    means = _means(moment.values[rows], moment.valid[rows] & in_job)
    threads = tuple((moment.nodes[moment.node[row]], int(moment.cpu[row])) for row in rows)
    owner = next((running.owner for running in snapshot.jobs if running.job == job), "")
    start_s = moment.end_s - min(length_s, int(moment.age_s[rows].max()))
    return JobUsage(job, owner, threads, moment.schema.names, means, start_s, moment.end_s, running=True)


def usage_recorded(recording: Recording, job: str) -> JobUsage:
    """The usage of a recorded job, over its whole time in the recording."""
    spans = [span for span in recording.spans if span.job == job]
    if not spans:
        raise SettingsError(f"there is no job {job!r} in {recording.directory}")
    means, threads = [], []
    for span in spans:
        trace = recording.trace(span.node, int(span.start_s), int(min(np.ceil(span.end_s), recording.end_s)))
        rows = [trace.cpus.index(cpu) for cpu in span.cpus if cpu in trace.cpus]
        means.append(_means(trace.values[rows], trace.valid[rows]))
        threads += [(span.node, trace.cpus[row]) for row in rows]
    end_s = max(span.end_s for span in spans)
    return JobUsage(
        job,
        spans[0].owner,
        tuple(threads),
        recording.schema.names,
        np.concatenate(means),
        min(span.start_s for span in spans),
        min(end_s, recording.end_s),
        running=bool(np.isinf(end_s)),
    )


def usage_past(past: TraceArchive | None, job: str) -> JobUsage | None:
    """The usage of a job that has ended; None if it is not recorded or the recording cannot be read."""
    try:
        recording = past.recording_with_job(job) if past else None
        return usage_recorded(recording, job) if recording else None
    except TwinError:
        return None


def notes(usage: JobUsage) -> list[str]:
    """Hints for the owner of the job; empty if there are none."""
    busy = usage.busy[~np.isnan(usage.busy)]
    mean = np.nanmean(usage.means, axis=0) if len(busy) else np.full(len(usage.channels), np.nan)
    total, idle = len(busy), int((busy < IDLE).sum())
    hints = []
    if total and idle == total:
        hints.append(f"All {total} threads were idle. If the job hangs: scancel {usage.job}")
    elif idle:
        nodes = {node for node, _ in usage.threads}
        directive = "--ntasks" if len(nodes) > 1 else "--cpus-per-task"
        hints.append(f"{idle} of {total} threads were idle: #SBATCH {directive}={total - idle}")
        if total - idle == 1:
            hints.append("One thread does all the work. If the program can use more threads:")
            hints.append("  export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK")
    if mean[usage.channels.index("iowait")] > 0.2:
        hints.append("The job waits for the disk. Write larger blocks, or write to the node's local disk:")
        hints.append("  #SBATCH --tmp=10G   and write to $TMPDIR")
    if mean[usage.channels.index("system")] > 0.3:
        hints.append("The kernel uses more than 30 % of the time: many small system calls, or ranks that poll.")
        hints.append("  #SBATCH --cpu-bind=cores   if ranks share a core")
    return hints


def render(usage: JobUsage, width: int = WIDTH) -> str:
    """The report as text. No line is longer than `width`."""
    lasted_s = usage.end_s - usage.start_s
    head = f"job {usage.job}" + (f" of {usage.owner}" if usage.owner else "")
    span = f"last {lasted_s:.0f} s" if usage.running else f"{lasted_s:.0f} s"
    lines = [f"{head[: width - len(span) - 1]:<{width - len(span)}}{span}", "─" * width]
    mean = np.nanmean(usage.means, axis=0) if not np.isnan(usage.means).all() else usage.means[0]
    for channel, share in zip(usage.channels, mean, strict=True):
        lines.append(_bar("idle" if channel == "other" else channel, share, width))
    lines.append("─" * width)
    order = np.argsort(-np.nan_to_num(usage.busy, nan=-1.0), kind="stable")
    for row in order[:MOST_ROWS]:
        node, cpu = usage.threads[row]
        lines.append(_bar(f"{node}/{cpu}", float(usage.busy[row]), width))
    if len(order) > MOST_ROWS:
        lines.append(f"… and {len(order) - MOST_ROWS} more threads, which were less busy")
    hints = notes(usage) or ["No changes suggested."]
    return "\n".join([*lines, "─" * width, *(line[:width] for line in hints)])


def _bar(name: str, share: float, width: int) -> str:
    room = width - 16 - 8
    if np.isnan(share):
        return f"{name[:15]:<16}{'?' * 3:<{room}}unknown"
    full = round(float(share) * room)
    return f"{name[:15]:<16}{'█' * full + '·' * (room - full)} {100 * share:5.1f} %"


def _means(values: NDArray[np.float32], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(thread, second, channel) -> (thread, channel): means over valid seconds; NaN if there are none."""
    seconds = valid.sum(1)[:, None]
    total = (values * valid[:, :, None]).sum(1, dtype=np.float64)
    return np.where(seconds > 0, total / np.maximum(seconds, 1), np.nan)
