"""Sample a day: its traces and verdicts -> moments for training, validation and hold-out, and a census.

The day is cut into blocks. Each block belongs to one role, and the roles alternate: every role gets moments from all
times of the day, and no second belongs to two roles. A small machine has few threads, so its moments follow each other
more closely; the census counts evidence that overlaps only once. Confirmed anomalies and maintenance are masked like
gaps. So are threads that wait for a disk most of the time: that is a fault in any program, and nobody may have noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustertwin.core.traces import Trace
from clustertwin.telemetry.learning.duel.event_alarms import MOST_IOWAIT
from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.learning.night.day_census import CensusCounter, DayCensus
from clustertwin.telemetry.learning.night.verdicts import VettedSpan, called_normal
from clustertwin.telemetry.moments.moment import LENGTH_S, WINDOW_S, Moment, moments
from clustertwin.telemetry.recording.trace_archive import TraceArchive

ROLES = ("train", "validation", "held_out")
#: The roles of successive blocks, repeated over the day.
BLOCK_ROLES = ("train", "train", "validation", "train", "held_out")
_CLOSEST_S = 10  # the shortest time between two moments of a block


@dataclass(frozen=True, slots=True)
class DaySplit:
    train: tuple[Moment, ...]
    validation: tuple[Moment, ...]
    held_out: tuple[Moment, ...]


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    moments: int = 150  # about this many, …
    windows: int = 3000  # … and of a small machine more and closer ones, until it has about this many windows
    threads: int = 1000  # at most about this many in each
    most_iowait: float = MOST_IOWAIT  # a thread that waits more is not learned, unless a person called it normal


def sample_day(
    day: Day,
    archive: TraceArchive,
    verdicts: Sequence[VettedSpan],
    settings: SamplingSettings = SamplingSettings(),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[DaySplit, DayCensus]:
    """Moments that are evenly spread over the data of the day."""
    start_s, end_s = archive.extent_s(day.start_s, day.end_s)
    plan = plan_moments(start_s, end_s, *_density(archive, start_s, end_s, settings))
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
        for moment, labels in moments(_random_nodes(masked, settings.threads, seed=now_s), first_s=now_s):
            if moment.end_s == now_s:
                healthy = _mask_stalls(moment, verdicts, settings.most_iowait, counter)
                counter.add_moment(healthy, labels)
                by_role[role].append(healthy)
    return DaySplit(*(tuple(by_role[role]) for role in ROLES)), counter.census(start_s, end_s)


def _density(archive: TraceArchive, start_s: int, end_s: int, settings: SamplingSettings) -> tuple[int, int]:
    """How many moments to sample, and how far apart they must be at least."""
    middle_s = (start_s + end_s) // 2
    threads = sum(len(trace.cpus) for trace in archive.traces(middle_s - LENGTH_S, middle_s)) if end_s > start_s else 0
    wanted = -(-settings.windows // threads) if threads else 0
    return (wanted, _CLOSEST_S) if wanted > settings.moments else (settings.moments, WINDOW_S)


def plan_moments(start_s: int, end_s: int, count: int, apart_s: int = WINDOW_S) -> list[tuple[str, int]]:
    """Roles, and the seconds at which their moments end; empty if the time is too short for every role.

    Moments of a block are at least `apart_s` apart.

    >>> [role for role, _ in plan_moments(0, 2000, 5)]
    ['train', 'train', 'validation', 'train', 'held_out']
    """
    sizes = range(5 * len(BLOCK_ROLES), 0, -len(BLOCK_ROLES))
    layouts = [(blocks, _moments_per_block(end_s - start_s, blocks, count, apart_s)) for blocks in sizes]
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


def _moments_per_block(length_s: int, blocks: int, count: int, apart_s: int) -> int:
    """How many moments a block holds."""
    room_s = length_s // blocks - LENGTH_S
    return 0 if room_s < 0 else min(-(-count // blocks), room_s // apart_s + 1)


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


def _mask_stalls(moment: Moment, verdicts: Sequence[VettedSpan], most_iowait: float, counter: CensusCounter) -> Moment:
    """Mask threads that wait for a disk most of the time. A detector that learns them does not see them any more."""
    iowait = moment.values[..., moment.schema.index("iowait")].sum(1) / np.maximum(moment.valid.sum(1), 1)
    stalled = (iowait > most_iowait) & ~called_normal(moment, verdicts)
    if not stalled.any():
        return moment
    counter.excluded_s["waits for a disk"] += int(moment.valid[stalled].sum())
    valid = moment.valid & ~stalled[:, None]
    return replace(moment, valid=valid, values=moment.values * valid[..., None])


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
