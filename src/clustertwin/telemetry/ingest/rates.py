"""Turn counters into ratios: CPU seconds since boot -> (cpu, second, channel), each second summing to one.

A second's ratio is each mode's step divided by the sum of the steps, so that it needs no scale and no nominal
tick rate. What cannot be trusted is masked and counted in `Faults`; it never becomes a giant or negative rate.
How sample times become seconds: see `boundaries`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU, NODE
from clustertwin.core.compiled import compiled
from clustertwin.core.errors import InputError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.ingest.counters import MODES, Counters, JobCpus, Reading, stack
from clustertwin.telemetry.ingest.second_boundaries import GAP, Boundaries

#: mode -> channel. A mode that is not here (guest, guest_nice) is already inside another one.
CHANNEL_OF_MODE = dict.fromkeys(MODES, "other") | {
    "user": "user",
    "nice": "user",
    "system": "system",
    "iowait": "iowait",
}
#: The kernel lets these run backwards a little: idle and iowait are corrected after the fact, steal by hypervisors.
MAY_STEP_BACK = ("idle", "iowait", "steal")

_LONGEST_S = 40 * 86_400


@dataclass(frozen=True, slots=True)
class Faults:
    """What was wrong with the counters. All but `late` and `doubled` (samples) count thread-seconds."""

    late: int = 0  # samples that came after a newer one (a stream drops them), or without a usable time
    doubled: int = 0  # samples of a second that already had one
    gap: int = 0  # masked: no sample for at least one second
    missing: int = 0  # masked: the thread was not there, or NaN
    infinite: int = 0  # masked: ±Inf
    reset: int = 0  # masked: the counters started again
    stalled: int = 0  # masked: the counters moved less than a tenth of the time that passed
    jumped: int = 0  # masked: the counters moved more than twice the time that passed
    stepped_back: int = 0  # kept: idle, iowait or steal decreased, and its step was taken as zero

    def __add__(self, other: Faults) -> Faults:
        if self is NONE or other is NONE:
            return other if self is NONE else self
        return Faults(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


#: Of a thousand nodes most have none, every second.
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
    """Modes -> the channel of each (-1: none) and whether it may step back."""
    channel = [CPU.index(CHANNEL_OF_MODE[mode]) if mode in CHANNEL_OF_MODE else -1 for mode in modes]
    return np.array(channel, dtype=np.intp), np.array([mode in MAY_STEP_BACK for mode in modes], dtype=bool)


def _steps(counters: Counters, pick: NDArray[np.intp], elapsed_s: NDArray[np.float64], node_channels: bool) -> Any:
    """The picked samples' steps -> ratios (cpu, step, channel), valid (cpu, step), counts (kind,)."""
    channel, soft = _folding(counters.modes)
    shape = len(counters.cpus), len(elapsed_s)
    ratios, valid = np.zeros((*shape, len(CPU))), np.zeros(shape, dtype=bool)
    counts = np.zeros(len(_KINDS), dtype=np.int64)
    _ratios(counters.seconds, pick, elapsed_s, channel, soft, ratios, valid, counts)
    if not node_channels:
        return ratios, valid, counts
    nothing = np.full(len(counters.times_s), np.nan)
    memory = nothing if counters.memory_used_ratio is None else counters.memory_used_ratio
    stalled = nothing if counters.io_stalled_s is None else counters.io_stalled_s
    pressure = np.diff(stalled[pick]) / elapsed_s  # (step,)
    company = np.stack([memory[pick[1:]], np.where(pressure >= 0, np.minimum(pressure, 1.0), np.nan)], axis=1)
    known = ((company >= 0) & (company <= 1)).all(axis=1)  # (step,) False for NaN
    counts[_MISSING] += int((valid & ~known).sum())
    valid &= known
    wide = np.broadcast_to(company, (*shape, len(NODE)))
    ratios = np.where(valid[..., None], np.concatenate([ratios, wide], axis=2), 0.0)
    return ratios, valid, counts


def to_trace(
    counters: Counters,
    *,
    interval_s: int = 1,
    start_s: int | None = None,
    end_s: int | None = None,
    node_channels: bool = False,
) -> tuple[Trace, Faults]:
    """Counters -> the node's trace on whole intervals from `start_s` to `end_s` (by default: as far as they reach).

    With `node_channels` the trace also holds memory_used and io_pressure, the same for every thread.
    """
    newest = np.fmax.accumulate(counters.times_s)
    clock = Boundaries(interval_s)
    clock.late = int((counters.times_s < newest).sum())  # late, but kept: the whole range is sorted first
    placed = [(i, clock.place(counters.times_s[i])) for i in np.argsort(counters.times_s, kind="stable")]
    pick = np.array([i for i, boundary in placed if boundary is not None], dtype=np.intp)
    bounds = np.array([boundary for _, boundary in placed if boundary is not None], dtype=np.int64)
    first = int(bounds[0]) if len(bounds) else 0
    last = int(bounds[-1]) if len(bounds) else 0
    first = first if start_s is None else -(-int(start_s) // interval_s)
    last = last if end_s is None else max(int(end_s) // interval_s, first)
    if (last - first) * interval_s > _LONGEST_S:
        raise InputError(counters.node, f"samples span {(last - first) * interval_s / 86400:.0f} days; ask for fewer")
    # Only steps that reach into the frame: what is wrong outside it is no fault of this trace.
    inside = slice(max(np.searchsorted(bounds, first, "right") - 1, 0), np.searchsorted(bounds, last) + 1)
    pick, bounds = pick[inside], bounds[inside]
    elapsed_s = np.diff(counters.times_s[pick])
    ratios, step_valid, counts = _steps(counters, pick, elapsed_s, node_channels)
    step_of = _fill(bounds, elapsed_s / interval_s, first, last)  # (time,)
    there = step_of >= 0
    schema = CPU + NODE if node_channels else CPU
    values = np.zeros((len(counters.cpus), len(step_of), len(schema)), dtype=np.float32)
    valid = np.zeros(values.shape[:2], dtype=bool)
    values[:, there] = ratios[:, step_of[there]]
    valid[:, there] = step_valid[:, step_of[there]]
    faults = Faults(clock.late, clock.doubled, int((~there).sum()) * len(counters.cpus), *map(int, counts))
    trace = Trace(counters.node, counters.cpus, first * interval_s, schema, values, valid, counters.spans, interval_s)
    return trace, faults


def _fill(bounds: NDArray[np.int64], elapsed: NDArray[np.float64], first: int, last: int) -> NDArray[np.intp]:
    """Which step tells of each interval from `first` to `last`; -1 in a gap.

    A step over two boundaries in about one interval is a slow sampler that slipped, not a gap.
    """
    step_of = np.full(last - first, -1, dtype=np.intp)
    for k, (a, b) in enumerate(zip(bounds[:-1] - first, bounds[1:] - first, strict=True)):
        if b - a == 1 or elapsed[k] <= GAP:
            step_of[max(a, 0) : max(b, 0)] = k
    return step_of


class RateStream:
    """The live form: one reading in, the seconds it completes out. Keeps one reading, and counts `faults`."""

    def __init__(self, interval_s: int = 1, node_channels: bool = False) -> None:
        self.interval_s, self.node_channels = interval_s, node_channels
        self._clock = Boundaries(interval_s)
        self._faults = NONE
        self._last: tuple[Reading, int] | None = None
        self._since_s: dict[JobCpus, float] = {}

    @property
    def faults(self) -> Faults:
        """All that was wrong so far."""
        late, doubled = self._clock.late, self._clock.doubled
        return self._faults + Faults(late, doubled) if late or doubled else self._faults

    def push(self, reading: Reading) -> Trace | None:
        """The trace of the seconds between the last reading and this one, or None where there is none yet.

        Its threads are those of either reading; its spans are the jobs seen now, from when they were first seen.
        """
        boundary = self._clock.place(reading.time_s)
        if boundary is None:
            return None
        if self._last is None or reading.jobs is not self._last[0].jobs:
            self._since_s = {job: self._since_s.get(job, reading.time_s) for job in reading.jobs}
        trace = self._step(*self._last, reading, boundary) if self._last is not None else None
        self._last = reading, boundary
        return trace

    def _step(self, last: Reading, start: int, now: Reading, end: int) -> Trace | None:
        elapsed_s = now.time_s - last.time_s
        if end - start > 1 and elapsed_s > GAP * self.interval_s:
            self._faults += Faults(gap=(end - start) * len(now.cpus))
            return None
        pair = _pair(last, now)
        elapsed = np.array([elapsed_s])
        ratios, valid, counts = _steps(pair, np.arange(2), elapsed, self.node_channels)
        if end - start > 1:
            ratios, valid = np.repeat(ratios, end - start, axis=1), np.repeat(valid, end - start, axis=1)
        spans = tuple(JobSpan(j.job, now.node, j.cpus, t, now.time_s) for j, t in self._since_s.items())
        schema = CPU + NODE if self.node_channels else CPU
        if counts.any():
            self._faults += Faults(0, 0, 0, *map(int, counts))
        values = ratios.astype(np.float32)
        return Trace(now.node, pair.cpus, start * self.interval_s, schema, values, valid, spans, self.interval_s)


def _pair(last: Reading, now: Reading) -> Counters:
    """Two readings as counters; the usual case, the same threads as before, is quick."""
    if last.cpus != now.cpus or last.modes != now.modes:
        return stack([last, now])
    seconds = np.empty((len(now.cpus), 2, len(now.modes)))
    seconds[:, 0], seconds[:, 1] = last.seconds, now.seconds
    return Counters(
        now.node,
        now.cpus,
        np.array([last.time_s, now.time_s]),
        seconds,
        now.modes,
        np.array([last.memory_used_ratio, now.memory_used_ratio]),
        np.array([last.io_stalled_s, now.io_stalled_s]),
    )
