"""The report of a job: how its threads spent their time -> bars, and notes that name the Slurm directive to change.

For a running job it covers the last five minutes; for a recorded job, its whole time. The notes begin with the advice
for the job's cause: that of its newest event, or the one that its last seconds show (`detection/events/causes.py`).
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import formatting
from clustertwin.core.errors import Overloaded, SettingsError, TwinError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.live.snapshot import ServiceState, Snapshot
from clustertwin.service.store.event_store import Case
from clustertwin.telemetry.detection.events.causes import IDLE as CAUSE_IDLE
from clustertwin.telemetry.detection.events.causes import STALLED_IO, UNUSUAL, cause_of
from clustertwin.telemetry.detection.events.diagnosis import FRESH_S, PAST_S, Means, classify, diagnose
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.recording.trace_archive import PrometheusArchive, TraceArchive, archive_turn

WIDTH = 78
IDLE = 0.05  # a thread that is busy for a smaller share of its time counts as idle
MOST_ROWS = 24
LONGEST_LABEL = 36  # characters of the name of a job or a thread
RUNNING_S = 30  # a job with data in the last seconds runs
LONGEST_S = 300  # before its end, in which a recorded job's last cause is looked for
PIECE_S = 3600  # of a node, in memory at a time
MOST_JOB_S = 366 * 86_400  # a damaged second can make a recording seem centuries long
PAST_JOB_S = 86_400  # before its end, that a request reads of a recorded job …
FEW_NODES = 8  # … on at most so many nodes; of one on more, as many seconds of a node in all, but at least …
LEAST_JOB_S = 600
READING_S = 20.0  # that a request waits for Prometheus


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
    cause: str = ""  # a row of `CAUSES`; empty: nothing is known to be wrong
    name: str = ""  # of the job or its program, if the source knows it
    when: tuple[float, float] = (0.0, 0.0)  # the seconds that the cause was found in

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
    name = next((running.name for running in snapshot.jobs if running.job == job), "")
    start_s = moment.end_s - min(length_s, int(moment.age_s[rows].max()))
    found = diagnose(moment, rows)
    return JobUsage(
        job,
        owner,
        threads,
        moment.schema.names,
        means,
        start_s,
        moment.end_s,
        running=True,
        cause=found.cause if found else "",
        name=name,
    )


@dataclass(frozen=True, slots=True)
class _JobPart:
    """A job on one node. Means are (thread, channel)."""

    span: JobSpan
    cpus: tuple[int, ...]
    channels: tuple[str, ...]
    means: Means  # over its whole time
    last: Means  # over its last seconds
    before: Means  # over the minutes before those
    start_s: float
    end_s: float


def usage_recorded(recording: Recording, job: str, longest_s: float = MOST_JOB_S) -> JobUsage:
    """The usage of a recorded job over its time in the recording, or over the last `longest_s` of it."""
    spans = [span for span in recording.spans if span.job == job]
    if not spans:
        raise SettingsError(f"there is no job {job!r} in {recording.directory}")
    end_s = min(max(span.end_s for span in spans), recording.end_s)
    parts = [_recorded_part(recording, span, end_s - longest_s) for span in spans if span.end_s > end_s - longest_s]
    running = any(np.isinf(span.end_s) for span in spans)
    return _usage(job, parts, [part for part in parts if part.span.end_s >= end_s], running)


def _recorded_part(recording: Recording, span: JobSpan, since_s: float) -> _JobPart:
    """Read an hour at a time: a job can run for weeks."""
    start_s = int(max(span.start_s, recording.start_s, since_s))
    end_s = max(int(min(np.ceil(span.end_s), recording.end_s)), start_s)
    tail = recording.trace(span.node, max(start_s, end_s - LONGEST_S), end_s)
    rows = [tail.cpus.index(cpu) for cpu in span.cpus if cpu in tail.cpus]
    total, seconds = np.zeros((len(rows), len(tail.schema))), np.zeros((len(rows), 1))
    for begin_s in range(start_s, end_s, PIECE_S):
        trace = recording.trace(span.node, begin_s, min(begin_s + PIECE_S, end_s))
        piece_total, piece_seconds = _sums(trace.values[rows], trace.valid[rows])
        total, seconds = total + piece_total, seconds + piece_seconds
    part = _part(span, tail, rows, slice(None))
    return replace(
        part, means=_ratios(total, seconds), start_s=max(span.start_s, since_s), end_s=min(span.end_s, recording.end_s)
    )


def _part(span: JobSpan, trace: Trace, rows: list[int], columns: slice) -> _JobPart:
    """The job in these columns of a trace."""
    values, valid = trace.values[rows, columns], trace.valid[rows, columns]
    past = slice(-LONGEST_S, -(FRESH_S + PAST_S))
    return _JobPart(
        span,
        tuple(trace.cpus[row] for row in rows),
        trace.schema.names,
        _means(values, valid),
        _means(values[:, -FRESH_S:], valid[:, -FRESH_S:]),
        _means(values[:, past], valid[:, past]),
        max(span.start_s, trace.start_s),
        min(span.end_s, trace.end_s),
    )


def _usage(job: str, parts: Sequence[_JobPart], newest: Sequence[_JobPart], running: bool) -> JobUsage:
    """All parts together. The cause is what the newest ones show."""
    last, before = np.concatenate([part.last for part in newest]), np.concatenate([part.before for part in newest])
    return JobUsage(
        job,
        parts[0].span.owner,
        tuple((part.span.node, cpu) for part in parts for cpu in part.cpus),
        parts[0].channels,
        np.concatenate([part.means for part in parts]),
        min(part.start_s for part in parts),
        max(part.end_s for part in parts),
        running=running,
        cause=_last_cause(last, before, parts[0].channels),
        name=parts[0].span.name,
    )


def with_cause(usage: JobUsage, cases: Sequence[Case]) -> JobUsage:
    """The usage with the cause of the job's newest event, unless a verdict says that nothing was wrong."""
    known = [case for case in cases if case.event.cause not in ("", UNUSUAL) and not case.is_settled]
    newest = max(known, key=lambda case: case.event.seen_s, default=None)
    if newest is None:
        return usage
    event = newest.event
    return replace(usage, cause=event.cause, owner=usage.owner or event.owner, when=(event.onset_s, event.seen_s))


def _last_cause(last: Means, before: Means, channels: tuple[str, ...]) -> str:
    """The cause that the last seconds of a job show; empty if they show none."""
    known = ~np.isnan(last).any(1)
    if not known.any():
        return ""
    cause = classify(last[known], channels, before[known])[0]
    return "" if cause == UNUSUAL else cause


def usage_queried(traces: Iterable[Trace], job: str, now_s: float) -> JobUsage | None:
    """The usage of a job in traces that were queried; None if none of them has it. One trace is kept at a time."""
    parts = []
    for trace in traces:
        for span in (span for span in trace.spans if span.job == job):
            rows = [trace.cpus.index(cpu) for cpu in span.cpus if cpu in trace.cpus]
            first = max(int(span.start_s) - trace.start_s, 0)
            until = max(int(min(np.ceil(span.end_s), trace.end_s)) - trace.start_s, first)
            parts.append(_part(span, trace, rows, slice(first, until)))
    running = max((part.end_s for part in parts), default=0.0) > now_s - RUNNING_S
    return _usage(job, parts, parts, running) if parts else None


def usage_past(past: TraceArchive | None, job: str, now_s: float | None = None) -> JobUsage | None:
    """The usage of a job that has ended; None if it is not recorded or the archive cannot be read.

    `Overloaded` if other requests read the archive, or if that takes too long.
    """
    if past is None:
        return None
    try:
        with archive_turn():
            if isinstance(past, PrometheusArchive):
                now_s = time.time() if now_s is None else now_s
                return usage_queried(past.job_traces(job, now_s, READING_S), job, now_s)
            recording = past.recording_with_job(job)
            if recording is None:
                return None
            nodes = len({span.node for span in recording.spans if span.job == job})
            longest_s = PAST_JOB_S if nodes <= FEW_NODES else max(PAST_JOB_S * FEW_NODES / nodes, LEAST_JOB_S)
            return usage_recorded(recording, job, longest_s)
    except Overloaded:
        raise
    except TwinError:
        return None


def find_usage(state: ServiceState, job: str, cases: Sequence[Case]) -> JobUsage | None:
    """The usage of a job that runs or that the archive knows, with the cause of its newest event in `cases`."""
    usage = usage_now(state.snapshot, job)
    if usage is None and (past := usage_past(state.past, job)) is not None:
        # The newest seconds do not have the job, so it has ended, even if the archive has it up to a moment ago.
        usage = replace(past, running=past.running and state.snapshot.moment is None)
    return with_cause(usage, cases) if usage else None


def notes(usage: JobUsage) -> list[str]:
    """Hints for the owner of the job; empty if there are none."""
    busy = usage.busy[~np.isnan(usage.busy)]
    mean = np.nanmean(usage.means, axis=0) if len(busy) else np.full(len(usage.channels), np.nan)
    total, idle = len(busy), int((busy < IDLE).sum())
    advised = total - idle if total > idle > 0 else 1
    words = {"job": shlex.quote(usage.job), "busy": f"{advised} of {total}", "threads": advised}
    hints = [line.format(**words) for line in cause_of(usage.cause).advice] if usage.cause else []
    if usage.when[0]:
        hints.insert(0, f"From {formatting.clock(usage.when[0])} to {formatting.clock(usage.when[1])}:")
    if total and idle == total:
        if usage.cause != CAUSE_IDLE:
            hints.append(f"All {total} threads were idle. If the job hangs: scancel {words['job']}")
    elif idle and not usage.cause:
        nodes = {node for node, _ in usage.threads}
        directive = "--ntasks" if len(nodes) > 1 else "--cpus-per-task"
        hints.append(f"{idle} of {total} threads were idle: #SBATCH {directive}={total - idle}")
        if total - idle == 1:
            hints.append("One thread does all the work. If the program can use more threads:")
            hints.append("  export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK")
    if mean[usage.channels.index("iowait")] > 0.2 and usage.cause != STALLED_IO:
        hints.append("The job waits for the disk. Write larger blocks, or write to the node's local disk:")
        hints.append("  #SBATCH --tmp=10G   and write to $TMPDIR")
    if mean[usage.channels.index("system")] > 0.3:
        hints.append("The kernel uses more than 30 % of the time: many small system calls, or ranks that poll.")
        hints.append("  #SBATCH --cpu-bind=cores   if ranks share a core")
    return hints


def render(usage: JobUsage, width: int = WIDTH) -> str:
    """The report as text. No line is longer than `width`."""
    lasted_s = usage.end_s - usage.start_s
    name = formatting.shortened(usage.name, LONGEST_LABEL)
    head = f"job {usage.job}" + (f" {name}" if name else "") + (f" of {usage.owner}" if usage.owner else "")
    span = f"last {lasted_s:.0f} s" if usage.running else f"{lasted_s:.0f} s"
    lines = [f"{head[: width - len(span) - 1]:<{width - len(span)}}{span}", "─" * width]
    mean = np.nanmean(usage.means, axis=0) if not np.isnan(usage.means).all() else usage.means[0]
    order = np.argsort(-np.nan_to_num(usage.busy, nan=-1.0), kind="stable")
    threads = [_thread(*usage.threads[row]) for row in order[:MOST_ROWS]]
    label = max(15, *map(len, threads)) if threads else 15
    for channel, share in zip(usage.channels, mean, strict=True):
        lines.append(_bar("idle" if channel == "other" else channel, share, label, width))
    lines.append("─" * width)
    for name, row in zip(threads, order, strict=False):
        lines.append(_bar(name, float(usage.busy[row]), label, width))
    if len(order) > MOST_ROWS:
        lines.append(f"… and {len(order) - MOST_ROWS} more threads, which were less busy")
    hints = notes(usage) or ["No changes suggested."]
    return "\n".join([*lines, "─" * width, *(line[:width] for line in hints)])


def _thread(node: str, cpu: int) -> str:
    """The name of a thread. That of its node is cut, never the number."""
    return f"{formatting.shortened(node, LONGEST_LABEL - 5)}/{cpu}"


def _bar(name: str, share: float, label: int, width: int) -> str:
    room = width - label - 9
    if np.isnan(share):
        return f"{name:<{label}} {'?' * 3:<{room}}unknown"
    full = round(float(share) * room)
    return f"{name:<{label}} {'█' * full + '·' * (room - full)} {100 * share:5.1f} %"


def _means(values: NDArray[np.float32], valid: NDArray[np.bool_]) -> Means:
    """(thread, second, channel) -> (thread, channel): means over valid seconds; NaN if there are none."""
    return _ratios(*_sums(values, valid))


def _sums(values: NDArray[np.float32], valid: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(thread, second, channel) -> (thread, channel) sums over valid seconds, and (thread, 1) their number."""
    return (values * valid[:, :, None]).sum(1, dtype=np.float64), valid.sum(1, dtype=np.float64)[:, None]


def _ratios(total: NDArray[np.float64], seconds: NDArray[np.float64]) -> Means:
    return np.where(seconds > 0, total / np.maximum(seconds, 1), np.nan)
