"""Turn counters into ratios: CPU seconds since boot -> (cpu, second, channel), each second summing to one.

The ratio of a mode in a second is its step divided by the sum of all steps, so no scale and no nominal tick rate is
needed. Values that cannot be trusted are masked and counted in `Faults`; they never become a giant or negative rate.
`second_boundaries` assigns sample times to seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU, JOB, NODE
from clustertwin.core.compiled import compiled
from clustertwin.core.errors import InputError
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace, spread_node_channels
from clustertwin.telemetry.ingest.counters import MODES, Counters, JobCpus, NodeReading, stack
from clustertwin.telemetry.ingest.node_channels import derive, derive_jobs, stolen
from clustertwin.telemetry.ingest.second_boundaries import GAP, Boundaries

#: mode -> channel. The other modes (guest, guest_nice) are already part of one of these.
CHANNEL_OF_MODE = dict.fromkeys(MODES, "other") | {
    "user": "user",
    "nice": "user",
    "system": "system",
    "iowait": "iowait",
}
#: These may decrease a little: the kernel corrects idle and iowait after the fact, hypervisors correct steal.
MAY_STEP_BACK = ("idle", "iowait", "steal")

_LONGEST_S = 40 * 86_400


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults of the counters. `late` and `doubled` count samples, the others count thread-seconds."""

    late: int = 0  # samples that arrived after a newer one (a stream drops them), or without a usable time
    doubled: int = 0  # samples of a second that already had one
    gap: int = 0  # masked: no sample for at least one second
    missing: int = 0  # masked: the thread was missing, or NaN
    infinite: int = 0  # masked: ±Inf
    reset: int = 0  # masked: the counters started again
    stalled: int = 0  # masked: the counters moved less than a tenth of the time that passed
    jumped: int = 0  # masked: the counters moved more than twice the time that passed
    stepped_back: int = 0  # kept: idle, iowait or steal decreased, and its step counts as zero

    def __add__(self, other: Faults) -> Faults:
        if self is NONE or other is NONE:
            return other if self is NONE else self
        return Faults(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


#: A shared object, because most of a thousand nodes have no faults in any second.
NONE = Faults()

_KINDS = ("missing", "infinite", "reset", "stalled", "jumped", "stepped_back")
_MISSING, _INFINITE, _RESET, _STALLED, _JUMPED, _STEPPED_BACK = range(len(_KINDS))
_EPSILON_S = 1e-7  # counters are float64 seconds with two or three decimals: a smaller step is rounding


@compiled
def _ratios(seconds, pick, elapsed_s, channel, may_step_back, ratios, valid, counts):  # type: ignore[no-untyped-def]
    """seconds (cpu, time, mode) at picked times -> ratios (cpu, step, channel), valid (cpu, step), counts (kind,)."""
    for cpu in range(seconds.shape[0]):
        for k in range(len(pick) - 1):
            total = raw = 0.0
            fault = -1
            stepped_back = False
            for mode in range(len(channel)):
                if channel[mode] < 0:
                    continue
                step = seconds[cpu, pick[k + 1], mode] - seconds[cpu, pick[k], mode]
                if not np.isfinite(step):
                    is_nan = np.isnan(seconds[cpu, pick[k + 1], mode]) or np.isnan(seconds[cpu, pick[k], mode])
                    fault = _MISSING if is_nan else _INFINITE
                    break
                raw += step
                if step < -_EPSILON_S:
                    if not may_step_back[mode]:
                        fault = _RESET
                        break
                    stepped_back = True
                step = max(step, 0.0)
                total += step
                ratios[cpu, k, channel[mode]] += step
            if fault < 0:
                if raw < -_EPSILON_S:
                    fault = _RESET
                elif total < 0.1 * elapsed_s[k]:
                    fault = _STALLED
                elif total > 2.0 * elapsed_s[k] + 0.5:
                    fault = _JUMPED
            if fault >= 0:
                counts[fault] += 1
                ratios[cpu, k, :] = 0.0
                continue
            counts[_STEPPED_BACK] += stepped_back
            valid[cpu, k] = True
            for c in range(ratios.shape[2]):
                ratios[cpu, k, c] /= total


@lru_cache
def _folding(modes: tuple[str, ...]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Modes -> the channel of each (-1: none), and whether it may step back."""
    channel = [CPU.index(CHANNEL_OF_MODE[mode]) if mode in CHANNEL_OF_MODE else -1 for mode in modes]
    return np.array(channel, dtype=np.intp), np.array([mode in MAY_STEP_BACK for mode in modes], dtype=bool)


def _steps(counters: Counters, pick: NDArray[np.intp], elapsed_s: NDArray[np.float64]) -> Any:
    """The steps between picked samples -> ratios (cpu, step, channel), valid (cpu, step), counts (kind,)."""
    channel, may_step_back = _folding(counters.modes)
    shape = len(counters.cpus), len(elapsed_s)
    ratios, valid = np.zeros((*shape, len(CPU))), np.zeros(shape, dtype=bool)
    counts = np.zeros(len(_KINDS), dtype=np.int64)
    _ratios(counters.seconds, pick, elapsed_s, channel, may_step_back, ratios, valid, counts)
    return ratios, valid, counts


def to_trace(
    counters: Counters,
    *,
    interval_s: int = 1,
    start_s: int | None = None,
    end_s: int | None = None,
    wide: bool = False,
) -> tuple[Trace, Faults]:
    """Counters -> the node's trace on whole intervals from `start_s` to `end_s`; without these, as far as they reach.

    In a `wide` trace every thread carries the node's channels too.
    """
    newest = np.fmax.accumulate(counters.times_s)
    clock = Boundaries(interval_s)
    clock.late = int((counters.times_s < newest).sum())  # late, but used: the whole range is sorted first
    placed = [(i, clock.place(counters.times_s[i])) for i in np.argsort(counters.times_s, kind="stable")]
    pick = np.array([i for i, boundary in placed if boundary is not None], dtype=np.intp)
    bounds = np.array([boundary for _, boundary in placed if boundary is not None], dtype=np.int64)
    first = int(bounds[0]) if len(bounds) else 0
    last = int(bounds[-1]) if len(bounds) else 0
    first = first if start_s is None else -(-int(start_s) // interval_s)
    last = last if end_s is None else max(int(end_s) // interval_s, first)
    if (last - first) * interval_s > _LONGEST_S:
        days = (last - first) * interval_s / 86400
        raise InputError(counters.node, f"samples span {days:.0f} days; request a shorter range")
    # Only steps that reach into the range: a fault outside is not a fault of this trace.
    inside = slice(max(np.searchsorted(bounds, first, "right") - 1, 0), np.searchsorted(bounds, last) + 1)
    pick, bounds = pick[inside], bounds[inside]
    elapsed_s = np.diff(counters.times_s[pick])
    ratios, step_valid, counts = _steps(counters, pick, elapsed_s)
    step_of = _fill(bounds, elapsed_s / interval_s, first, last)  # (time,)
    there = step_of >= 0
    values = np.zeros((len(counters.cpus), len(step_of), len(CPU)), dtype=np.float32)
    valid = np.zeros(values.shape[:2], dtype=bool)
    values[:, there] = ratios[:, step_of[there]]
    valid[:, there] = step_valid[:, step_of[there]]
    node_values = np.full((len(step_of), len(NODE)), np.nan, np.float32)
    node_values[there] = _node_values(counters, pick, elapsed_s)[step_of[there]]
    faults = Faults(clock.late, clock.doubled, int((~there).sum()) * len(counters.cpus), *map(int, counts))
    trace = Trace(
        node=counters.node,
        cpus=counters.cpus,
        start_s=first * interval_s,
        schema=CPU,
        values=values,
        valid=valid,
        spans=counters.spans,
        interval_s=interval_s,
        node_channels=NodeChannels(NODE, node_values),
        job_channels=_job_channels(counters, pick, elapsed_s, step_of),
    )
    return _widened(trace, faults) if wide else (trace, faults)


def _node_values(counters: Counters, pick: NDArray[np.intp], elapsed_s: NDArray[np.float64]) -> NDArray[np.float32]:
    """The node channels (step, channel) of the steps between picked samples."""
    values = derive(counters.operands, pick, elapsed_s, len(counters.cpus))
    values[:, _STEAL] = stolen(counters.seconds, counters.modes, pick)
    return values


def _job_channels(
    counters: Counters, pick: NDArray[np.intp], elapsed_s: NDArray[np.float64], step_of: NDArray[np.intp]
) -> JobChannels | None:
    if counters.job_counters is None:
        return None
    there = step_of >= 0
    values = np.full((len(counters.job_counters.jobs), len(step_of), len(JOB)), np.nan, np.float32)
    values[:, there] = derive_jobs(counters.job_counters.operands, pick, elapsed_s)[:, step_of[there]]
    return JobChannels(JOB, counters.job_counters.jobs, values)


def _widened(trace: Trace, faults: Faults) -> tuple[Trace, Faults]:
    """Seconds whose node channels are unknown become invalid, and count as missing."""
    wide = spread_node_channels(trace)
    return wide, faults + Faults(missing=int((trace.valid & ~wide.valid).sum()))


def _fill(bounds: NDArray[np.int64], elapsed: NDArray[np.float64], first: int, last: int) -> NDArray[np.intp]:
    """The step of each interval from `first` to `last`; -1 in a gap.

    A step over two boundaries in about one interval is a slow sampler that slipped, not a gap.
    """
    step_of = np.full(last - first, -1, dtype=np.intp)
    for k, (a, b) in enumerate(zip(bounds[:-1] - first, bounds[1:] - first, strict=True)):
        if b - a == 1 or elapsed[k] <= GAP:
            step_of[max(a, 0) : max(b, 0)] = k
    return step_of


class RateStream:
    """The live form: one reading in, the seconds it completes out. Keeps one reading, and counts `faults`."""

    def __init__(self, interval_s: int = 1, wide: bool = False) -> None:
        self.interval_s, self.wide = interval_s, wide
        self._clock = Boundaries(interval_s)
        self._faults = NONE
        self._last: tuple[NodeReading, int] | None = None
        self._since_s: dict[JobCpus, float] = {}

    @property
    def faults(self) -> Faults:
        """All faults so far."""
        late, doubled = self._clock.late, self._clock.doubled
        return self._faults + Faults(late, doubled) if late or doubled else self._faults

    def push(self, reading: NodeReading) -> Trace | None:
        """The trace of the seconds between the last reading and this one, or None if there is none yet.

        It has the threads of both readings. Its spans are the jobs of this reading, from the first reading of each.
        """
        boundary = self._clock.place(reading.time_s)
        if boundary is None:
            return None
        if self._last is None or reading.jobs is not self._last[0].jobs:
            self._since_s = {job: self._since_s.get(job, reading.time_s) for job in reading.jobs}
        trace = self._step(*self._last, reading, boundary) if self._last is not None else None
        self._last = reading, boundary
        if trace is not None and self.wide:
            trace, self._faults = _widened(trace, self._faults)
        return trace

    def _step(self, last: NodeReading, start: int, now: NodeReading, end: int) -> Trace | None:
        elapsed_s = now.time_s - last.time_s
        if end - start > 1 and elapsed_s > GAP * self.interval_s:
            self._faults += Faults(gap=(end - start) * len(now.cpus))
            return None
        pair = _pair(last, now)
        elapsed = np.array([elapsed_s])
        ratios, valid, counts = _steps(pair, _BOTH, elapsed)
        node_values = _node_values(pair, _BOTH, elapsed)
        job_channels = _job_step(last, now, elapsed, end - start)
        if end - start > 1:
            ratios, valid = np.repeat(ratios, end - start, axis=1), np.repeat(valid, end - start, axis=1)
            node_values = np.repeat(node_values, end - start, axis=0)
        spans = tuple(JobSpan(j.job, now.node, j.cpus, t, now.time_s) for j, t in self._since_s.items())
        if counts.any():
            self._faults += Faults(0, 0, 0, *map(int, counts))
        return Trace(
            node=now.node,
            cpus=pair.cpus,
            start_s=start * self.interval_s,
            schema=CPU,
            values=ratios.astype(np.float32),
            valid=valid,
            spans=spans,
            interval_s=self.interval_s,
            node_channels=NodeChannels(NODE, node_values),
            job_channels=job_channels,
        )


_BOTH = np.arange(2)
_STEAL = NODE.index("steal")


def _job_step(last: NodeReading, now: NodeReading, elapsed_s: NDArray[np.float64], seconds: int) -> JobChannels | None:
    """The channels of the jobs of this reading over the step from the last one; gauges of a new job are known."""
    if now.job_operands is None:
        return None
    operands = np.full((len(now.jobs), 2, len(JOB), 2), np.nan)
    operands[:, 1] = now.job_operands
    if last.job_operands is not None:
        if last.jobs is now.jobs or last.jobs == now.jobs:
            operands[:, 0] = last.job_operands
        else:
            row = {job.job: i for i, job in enumerate(last.jobs)}
            known = [i for i, job in enumerate(now.jobs) if job.job in row]
            operands[known, 0] = last.job_operands[[row[now.jobs[i].job] for i in known]]
    values = derive_jobs(operands, _BOTH, elapsed_s)
    return JobChannels(JOB, tuple(job.job for job in now.jobs), np.repeat(values, seconds, axis=1))


def _pair(last: NodeReading, now: NodeReading) -> Counters:
    """Two readings as counters. The usual case, the same threads in both, is fast."""
    if last.cpus != now.cpus or last.modes != now.modes:
        return stack([last, now])
    seconds = np.empty((len(now.cpus), 2, len(now.modes)))
    seconds[:, 0], seconds[:, 1] = last.seconds, now.seconds
    operands = np.empty((2, len(NODE), 2))
    operands[0], operands[1] = last.operands, now.operands
    return Counters(now.node, now.cpus, np.array([last.time_s, now.time_s]), seconds, now.modes, operands)
