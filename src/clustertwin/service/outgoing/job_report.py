"""A job's own report: what its threads did -> bars of fixed width, and notes that name the directive to change.

Of a running job it speaks of the last five minutes; of one in a recording, of all its seconds.
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
IDLE = 0.05  # a thread that is busy for less of its time did next to nothing
MOST_ROWS = 24


@dataclass(frozen=True, slots=True)
class Usage:
    """Where the time of each of a job's threads went; NaN where no second is known."""

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
        """(thread,) all but `other`."""
        return 1 - self.means[:, self.channels.index("other")]


def usage_now(snapshot: Snapshot, job: str) -> Usage | None:
    """Of a job that runs now; None where none of that name does."""
    moment = snapshot.moment
    if moment is None or job not in moment.jobs:
        return None
    rows = np.flatnonzero(moment.job == moment.jobs.index(job))
    length_s = moment.values.shape[1]
    held = np.arange(length_s, 0, -1) <= moment.age_s[rows, None]  # (thread, second)
    means = _means(moment.values[rows], moment.valid[rows] & held)
    threads = tuple((moment.nodes[moment.node[row]], int(moment.cpu[row])) for row in rows)
    owner = next((one.owner for one in snapshot.jobs if one.job == job), "")
    start_s = moment.end_s - min(length_s, int(moment.age_s[rows].max()))
    return Usage(job, owner, threads, moment.schema.names, means, start_s, moment.end_s, running=True)


def usage_recorded(recording: Recording, job: str) -> Usage:
    """Of a job in a recording, over its whole time there."""
    spans = [span for span in recording.spans if span.job == job]
    if not spans:
        raise SettingsError(f"no job {job!r} in {recording.directory}")
    means, threads = [], []
    for span in spans:
        trace = recording.trace(span.node, int(span.start_s), int(min(np.ceil(span.end_s), recording.end_s)))
        rows = [trace.cpus.index(cpu) for cpu in span.cpus if cpu in trace.cpus]
        means.append(_means(trace.values[rows], trace.valid[rows]))
        threads += [(span.node, trace.cpus[row]) for row in rows]
    end_s = max(span.end_s for span in spans)
    return Usage(
        job,
        spans[0].owner,
        tuple(threads),
        recording.schema.names,
        np.concatenate(means),
        min(span.start_s for span in spans),
        min(end_s, recording.end_s),
        running=bool(np.isinf(end_s)),
    )


def usage_past(past: TraceArchive | None, job: str) -> Usage | None:
    """Of a job that is over, where its seconds are recorded; None where they are not, or cannot be read."""
    try:
        recording = past.recording_with_job(job) if past else None
        return usage_recorded(recording, job) if recording else None
    except TwinError:
        return None


def notes(usage: Usage) -> list[str]:
    """What its owner could do better; empty where nothing is to be said."""
    busy = usage.busy[~np.isnan(usage.busy)]
    mean = np.nanmean(usage.means, axis=0) if len(busy) else np.full(len(usage.channels), np.nan)
    total, idle = len(busy), int((busy < IDLE).sum())
    said = []
    if total and idle == total:
        said.append(f"All {total} threads did next to nothing. If it hangs: scancel {usage.job}")
    elif idle:
        nodes = {node for node, _ in usage.threads}
        directive = "--ntasks" if len(nodes) > 1 else "--cpus-per-task"
        said.append(f"{idle} of {total} threads did next to nothing: #SBATCH {directive}={total - idle}")
        if total - idle == 1:
            said.append("One thread does all the work. If the program can use more:")
            said.append("  export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK")
    if mean[usage.channels.index("iowait")] > 0.2:
        said.append("It waits for the disk. Write larger pieces, or to the node's own disk:")
        said.append("  #SBATCH --tmp=10G   and write to $TMPDIR")
    if mean[usage.channels.index("system")] > 0.3:
        said.append("More than 30 % of its time is the kernel's: many small calls, or ranks that poll.")
        said.append("  #SBATCH --cpu-bind=cores   if ranks share a core")
    return said


def render(usage: Usage, width: int = WIDTH) -> str:
    """The report as text, no line longer than `width`."""
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
        lines.append(f"… and {len(order) - MOST_ROWS} threads more, less busy than these")
    said = notes(usage)
    return "\n".join([*lines, "─" * width, *(line[:width] for line in said or ["Nothing to change."])])


def _bar(name: str, share: float, width: int) -> str:
    room = width - 16 - 8
    if np.isnan(share):
        return f"{name[:15]:<16}{'?' * 3:<{room}}unknown"
    full = round(float(share) * room)
    return f"{name[:15]:<16}{'█' * full + '·' * (room - full)} {100 * share:5.1f} %"


def _means(values: NDArray[np.float32], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(thread, second, channel) -> (thread, channel) over valid seconds, NaN where there is none."""
    seconds = valid.sum(1)[:, None]
    total = (values * valid[:, :, None]).sum(1, dtype=np.float64)
    return np.where(seconds > 0, total / np.maximum(seconds, 1), np.nan)
