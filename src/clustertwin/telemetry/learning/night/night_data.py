"""What a night learns from: a day, what is known of it and what people said -> moments to train, validate and judge on.

The day is cut into blocks, and each block belongs to one role only, in turn, so that every role sees morning and
evening and no second is in two. What was confirmed as an anomaly, and maintenance, is masked like any other gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from clustertwin.core.traces import Trace, Windows
from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.learning.night.verdicts import Vetted
from clustertwin.telemetry.moments.moment import LENGTH_S, Moment, moments
from clustertwin.telemetry.recording.trace_archive import TraceArchive

#: Block after block, over and over.
TURNS = ("train", "train", "validation", "train", "held_out")
_WINDOW_S = 100
_ENOUGH = 0.8  # of a window's seconds must be valid to learn from it


@dataclass(frozen=True, slots=True)
class Census:
    """What the day held, and what was left out and why."""

    start_s: int
    end_s: int  # of what is known; both 0: nothing
    seen: dict[str, float] = field(default_factory=dict)  # node -> part of its seconds that were valid
    threads: int = 0
    windows: int = 0  # settled and valid, over all roles
    job_types: dict[str, int] = field(default_factory=dict)  # windows of each type, where anyone named types
    left_out_s: dict[str, int] = field(default_factory=dict)  # why -> thread-seconds of the moments taken


@dataclass(frozen=True, slots=True)
class Material:
    train: tuple[Moment, ...]
    validation: tuple[Moment, ...]
    held_out: tuple[Moment, ...]


def gather(
    day: Day,
    past: TraceArchive,
    said: Sequence[Vetted],
    count: int = 150,
    progress: Callable[[int, int], None] = lambda i, n: None,
    threads: int = 1000,
) -> tuple[Material, Census]:
    """About `count` moments, spread over what is known of the day; of each so many threads that memory stays small."""
    start_s, end_s = past.extent_s(day.start_s, day.end_s)
    times = plan(start_s, end_s, count)
    found: dict[str, list[Moment]] = {role: [] for role in TURNS}
    tally = _Tally()
    for i, (role, now_s) in enumerate(times):
        progress(i, len(times))
        traces = [t for t in past.traces(now_s - LENGTH_S, now_s) if t.interval_s == 1 and len(t.cpus)]
        schemas = Counter(t.schema for t in traces)
        if not schemas:
            continue
        schema = schemas.most_common(1)[0][0]
        masked = [_mask(_finite(t, tally), said, tally) for t in traces if t.schema == schema]
        for trace in masked:
            tally.see(trace)
        masked = _some(masked, threads, now_s)
        for moment, labels in moments(masked, first_s=now_s):
            if moment.end_s == now_s:
                tally.add(moment, labels)
                found[role].append(moment)
    census = tally.census(start_s, end_s)
    return Material(*(tuple(found[role]) for role in ("train", "validation", "held_out"))), census


def plan(start_s: int, end_s: int, count: int) -> list[tuple[str, int]]:
    """Roles and the seconds at which their moments end; empty where the time is too short for every role.

    >>> [role for role, _ in plan(0, 2000, 5)]
    ['train', 'train', 'validation', 'train', 'held_out']
    """
    layouts = [(blocks, _fit(end_s - start_s, blocks, count)) for blocks in range(5 * len(TURNS), 0, -len(TURNS))]
    # The finest cut that holds as many as wanted, or the one that holds most: a short day has few places.
    blocks, each = max(layouts, key=lambda layout: (min(layout[0] * layout[1], count), layout[0]))
    if not each:
        return []
    length_s = (end_s - start_s) // blocks
    ends = np.linspace(length_s, LENGTH_S, each)[::-1].astype(int).tolist()
    return [(TURNS[b % len(TURNS)], start_s + b * length_s + end) for b in range(blocks) for end in ends]


def _fit(length_s: int, blocks: int, count: int) -> int:
    """Moments that each of so many blocks holds; closer than a window, two would show the same seconds."""
    room = length_s // blocks - LENGTH_S
    return 0 if room < 0 else min(-(-count // blocks), room // _WINDOW_S + 1)


def windows_of(taken: Sequence[Moment]) -> Windows:
    """The last window of every thread that is settled and mostly valid: (n, 100, channel)."""
    return Windows.concat([_windows(moment) for moment in taken])


def _windows(moment: Moment) -> Windows:
    values, valid = moment.windows(_WINDOW_S)
    rows = np.flatnonzero(_usable(moment))
    empty = np.full(len(rows), "")
    return Windows(
        schema=moment.schema,
        values=values[rows],
        valid=valid[rows],
        start_s=np.full(len(rows), moment.end_s - _WINDOW_S, np.int64),
        node=np.array(moment.nodes)[moment.node[rows]],
        cpu=moment.cpu[rows],
        job=np.array([*moment.jobs, ""])[moment.job[rows]],  # -1, no job, is the last
        job_type=empty,
        anomaly=empty,
        campaign=empty,
        split=empty,
    )


def _usable(moment: Moment) -> np.ndarray:
    usable: np.ndarray = moment.settled & (moment.windows(_WINDOW_S)[1].mean(1) >= _ENOUGH)
    return usable


def _some(traces: list[Trace], threads: int, seed: int) -> list[Trace]:
    """Whole nodes by lot, at least one; at another moment it is the turn of others."""
    turn = np.random.default_rng(seed).permutation(len(traces))
    total = np.cumsum([len(traces[i].cpus) for i in turn])
    return [traces[i] for i in sorted(turn[: max(1, int((total <= threads).sum()))])]


def _finite(trace: Trace, tally: _Tally) -> Trace:
    """A value that is no number is unknown, not zero and not an anomaly."""
    broken = trace.valid & ~np.isfinite(trace.values).all(-1)
    if not broken.any():
        return trace
    tally.left_out["not a number"] += int(broken.sum())
    return replace(trace, valid=trace.valid & ~broken, values=np.nan_to_num(trace.values))


def _mask(trace: Trace, said: Sequence[Vetted], tally: _Tally) -> Trace:
    """Unsee what must not be learned."""
    valid = trace.valid.copy()
    for vetted in said:
        if vetted.verdict not in ("confirmed", "maintenance") or not vetted.holds(trace.node):
            continue
        # An event's onset is the end of the first window that showed it: the window itself is part of it.
        early_s = _WINDOW_S if vetted.verdict == "confirmed" else 0
        first = max(int(np.floor(vetted.start_s)) - early_s - trace.start_s, 0)
        last = max(int(np.ceil(vetted.end_s)) - trace.start_s, 0)
        rows = np.isin(trace.cpus, vetted.cpus) if vetted.cpus else np.ones(len(trace.cpus), np.bool_)
        tally.left_out[vetted.verdict] += int(valid[rows, first:last].sum())
        valid[rows, first:last] = False
    return replace(trace, valid=valid)


class _Tally:
    """Counts while moments go by."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.valid: Counter[str] = Counter()
        self.cpus: Counter[str] = Counter()
        self.windows = 0

    def see(self, trace: Trace) -> None:
        self.seconds[trace.node] += len(trace.cpus) * LENGTH_S
        self.valid[trace.node] += int(trace.valid.sum())
        self.cpus[trace.node] = max(self.cpus[trace.node], len(trace.cpus))

    def add(self, moment: Moment, labels: Windows) -> None:
        usable = _usable(moment)
        self.windows += int(usable.sum())
        self.left_out["masked"] += int((~moment.valid).sum())
        self.left_out["a job's edge"] += int((~moment.settled).sum()) * _WINDOW_S
        self.types.update(name for name in labels.job_type[usable].tolist() if name not in ("", "mixed"))

    def census(self, start_s: int, end_s: int) -> Census:
        seen = {node: self.valid[node] / self.seconds[node] for node in sorted(self.seconds)}
        left_out = {why: seconds for why, seconds in self.left_out.items() if seconds}
        return Census(start_s, end_s, seen, self.cpus.total(), self.windows, dict(self.types), left_out)
