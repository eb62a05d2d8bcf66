"""Sample a day: its traces and verdicts -> moments for training, validation and hold-out, and a census.

The day is cut into blocks. Each block belongs to one role, and the roles alternate: every role gets moments from all
times of the day, and no second belongs to two roles. Confirmed anomalies and maintenance are masked like gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustertwin.core.traces import Trace
from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.learning.night.day_census import CensusCounter, DayCensus
from clustertwin.telemetry.learning.night.verdicts import VettedSpan
from clustertwin.telemetry.moments.moment import LENGTH_S, WINDOW_S, Moment, moments
from clustertwin.telemetry.recording.trace_archive import TraceArchive

ROLES = ("train", "validation", "held_out")
#: The roles of successive blocks, repeated over the day.
BLOCK_ROLES = ("train", "train", "validation", "train", "held_out")


@dataclass(frozen=True, slots=True)
class DaySplit:
    train: tuple[Moment, ...]
    validation: tuple[Moment, ...]
    held_out: tuple[Moment, ...]


def sample_day(
    day: Day,
    archive: TraceArchive,
    verdicts: Sequence[VettedSpan],
    count: int = 150,
    progress: Callable[[int, int], None] = lambda done, total: None,
    threads: int = 1000,
) -> tuple[DaySplit, DayCensus]:
    """About `count` moments, evenly spread over the data of the day, with at most about `threads` threads each."""
    start_s, end_s = archive.extent_s(day.start_s, day.end_s)
    plan = plan_moments(start_s, end_s, count)
    by_role: dict[str, list[Moment]] = {role: [] for role in ROLES}
    counter = CensusCounter()
    for i, (role, now_s) in enumerate(plan):
        progress(i, len(plan))
        traces = [t for t in archive.traces(now_s - LENGTH_S, now_s) if t.interval_s == 1 and len(t.cpus)]
        schemas = Counter(trace.schema for trace in traces)
        if not schemas:
            continue
        schema = schemas.most_common(1)[0][0]
        masked = [_mask_verdicts(_mask_nan(t, counter), verdicts, counter) for t in traces if t.schema == schema]
        for trace in masked:
            counter.add_trace(trace)
        for moment, labels in moments(_random_nodes(masked, threads, seed=now_s), first_s=now_s):
            if moment.end_s == now_s:
                counter.add_moment(moment, labels)
                by_role[role].append(moment)
    return DaySplit(*(tuple(by_role[role]) for role in ROLES)), counter.census(start_s, end_s)


def plan_moments(start_s: int, end_s: int, count: int) -> list[tuple[str, int]]:
    """Roles, and the seconds at which their moments end; empty if the time is too short for every role.

    >>> [role for role, _ in plan_moments(0, 2000, 5)]
    ['train', 'train', 'validation', 'train', 'held_out']
    """
    sizes = range(5 * len(BLOCK_ROLES), 0, -len(BLOCK_ROLES))
    layouts = [(blocks, _moments_per_block(end_s - start_s, blocks, count)) for blocks in sizes]
    # Use the finest layout with room for `count` moments. A short day has less room: use the layout with the most.
    blocks, per_block = max(layouts, key=lambda layout: (min(layout[0] * layout[1], count), layout[0]))
    if not per_block:
        return []
    length_s = (end_s - start_s) // blocks
    offsets_s = np.linspace(length_s, LENGTH_S, per_block)[::-1].astype(int).tolist()
    return [
        (BLOCK_ROLES[block % len(BLOCK_ROLES)], start_s + block * length_s + offset_s)
        for block in range(blocks)
        for offset_s in offsets_s
    ]


def _moments_per_block(length_s: int, blocks: int, count: int) -> int:
    """How many moments a block holds. They are at least one window apart, so that their windows do not overlap."""
    room_s = length_s // blocks - LENGTH_S
    return 0 if room_s < 0 else min(-(-count // blocks), room_s // WINDOW_S + 1)


def _random_nodes(traces: list[Trace], threads: int, seed: int) -> list[Trace]:
    """Randomly chosen nodes with at most `threads` threads in total, but at least one node."""
    order = np.random.default_rng(seed).permutation(len(traces))
    total = np.cumsum([len(traces[i].cpus) for i in order])
    return [traces[i] for i in sorted(order[: max(1, int((total <= threads).sum()))])]


def _mask_nan(trace: Trace, counter: CensusCounter) -> Trace:
    """A value that is not a number is unknown: neither zero nor an anomaly."""
    broken = trace.valid & ~np.isfinite(trace.values).all(-1)
    if not broken.any():
        return trace
    counter.excluded_s["not a number"] += int(broken.sum())
    return replace(trace, valid=trace.valid & ~broken, values=np.nan_to_num(trace.values))


def _mask_verdicts(trace: Trace, verdicts: Sequence[VettedSpan], counter: CensusCounter) -> Trace:
    """Mask confirmed anomalies and maintenance, so that no model trains on them."""
    valid = trace.valid.copy()
    for span in verdicts:
        if span.verdict not in ("confirmed", "maintenance") or not span.covers(trace.node):
            continue
        # An event starts at the end of the first window that showed the anomaly, so that window is masked as well.
        lead_s = WINDOW_S if span.verdict == "confirmed" else 0
        first = max(int(np.floor(span.start_s)) - lead_s - trace.start_s, 0)
        last = max(int(np.ceil(span.end_s)) - trace.start_s, 0)
        rows = np.isin(trace.cpus, span.cpus) if span.cpus else np.ones(len(trace.cpus), np.bool_)
        counter.excluded_s[span.verdict] += int(valid[rows, first:last].sum())
        valid[rows, first:last] = False
    return replace(trace, valid=valid)
