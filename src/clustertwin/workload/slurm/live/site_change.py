"""Try a change on the live queue: weights, nodes added or drained -> when jobs start, before and after.

Both sides see the same futures. New weights apply to the factors that sprio prints for each waiting job, so that a
job's priority changes by what the weights change, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import InputError, SettingsError
from clustertwin.workload.slurm.joblog.job_table import SlurmLog
from clustertwin.workload.slurm.live.site_queue import SiteQueue
from clustertwin.workload.slurm.live.site_start import NEVER_S, SiteFuture, play_queue, queue_futures, site_of_now
from clustertwin.workload.slurm.site.slurm_site import PRIORITY_WEIGHTS, NodeGroup, SlurmSite

Floats = NDArray[np.float64]

SPRIO_COMMAND = ("sprio", "--noheader", "--format=%i|%a|%f|%j|%p|%q")
MOST_ADDED = 10_000


@dataclass(frozen=True, slots=True)
class SiteChange:
    """What is changed; an empty change compares the site with itself."""

    weights: Mapping[str, float] = field(default_factory=dict)
    add_nodes: int = 0
    like_node: str = ""  # added nodes are like this one; empty: like those of the largest group
    drain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartChange:
    """A waiting job: the median start, in seconds from now, before and after the change."""

    job: str
    user: str
    partition: str
    old_s: float
    new_s: float


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The mean wait of a group of waiting jobs from now on, over all futures, and 80 % of the futures' ratios."""

    kind: str
    name: str
    jobs: int
    old_wait_s: float
    new_wait_s: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What a change does to the jobs that wait now."""

    groups: tuple[GroupChange, ...]  # all jobs first, then partitions, then users
    jobs: tuple[StartChange, ...]  # the largest gain first
    futures: int
    old_weights: dict[str, float]
    new_weights: dict[str, float]
    notes: tuple[str, ...]


def parse_factors(text: str) -> dict[str, tuple[float, ...]]:
    """sprio's answer (`SPRIO_COMMAND`) -> the factors of each job, in the order of `PRIORITY_WEIGHTS`.

    >>> parse_factors("17|0.5|1.0|0.1|0.0|0.0")
    {'17': (0.5, 1.0, 0.1, 0.0, 0.0)}
    """
    found: dict[str, tuple[float, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, *values = (part.strip() for part in line.split("|"))
        try:
            factors = tuple(float(value) for value in values)
        except ValueError as error:
            raise InputError("sprio", str(error), number) from error
        if len(factors) != len(PRIORITY_WEIGHTS):
            raise InputError("sprio", f"{len(factors)} factors, expected {len(PRIORITY_WEIGHTS)}", number)
        found.setdefault(name, factors)  # a job in several partitions has several lines
    return found


def changed_site(site: SlurmSite, change: SiteChange) -> SlurmSite:
    """The site with other weights, with more nodes, and with some drained."""
    unknown = [name for name in change.weights if name not in PRIORITY_WEIGHTS]
    if unknown:
        raise SettingsError(f"there is no weight {unknown[0]!r}; there are {', '.join(PRIORITY_WEIGHTS)}")
    if any(value < 0 for value in change.weights.values()):
        raise SettingsError("a weight is at least 0")
    weights: dict[str, Any] = dict(change.weights)
    site = replace(site, priority=replace(site.priority, **weights))
    missing = [name for name in change.drain if name not in set(site.node_names)]
    if missing:
        raise SettingsError(f"there is no node {missing[0]} to drain")
    if change.drain:
        site = replace(site, groups=tuple(part for group in site.groups for part in _drained(group, set(change.drain))))
    return _with_nodes(site, change) if change.add_nodes else site


def _drained(group: NodeGroup, names: set[str]) -> list[NodeGroup]:
    down = tuple(name for name in group.names if name in names)
    up = tuple(name for name in group.names if name not in names)
    parts = [replace(group, names=up)] if up else []
    return [*parts, replace(group, names=down, available=False)] if down else parts


def _with_nodes(site: SlurmSite, change: SiteChange) -> SlurmSite:
    """More nodes of one kind, in the partitions and below the switch of the node that they are like."""
    if not 0 < change.add_nodes <= MOST_ADDED:
        raise SettingsError(f"add between 1 and {MOST_ADDED:,} nodes, not {change.add_nodes:,}")
    like = change.like_node
    group = next((each for each in site.groups if like in each.names), None)
    if like and group is None:
        raise SettingsError(f"there is no node {like} to be like")
    group = group or max(site.groups, key=lambda each: (each.available, len(each.names)))
    like = like or group.names[0]
    names = tuple(f"added-{k + 1}" for k in range(change.add_nodes))
    partitions = [replace(p, nodes=(*p.nodes, *names)) if like in p.nodes else p for p in site.partitions]
    switches = [replace(s, nodes=(*s.nodes, *names)) if like in s.nodes else s for s in site.switches]
    groups = (*site.groups, replace(group, names=names, available=True))
    return replace(site, groups=groups, partitions=tuple(partitions), switches=tuple(switches))


def changed_queue(
    queue: SiteQueue, site: SlurmSite, change: SiteChange, factors: Mapping[str, tuple[float, ...]]
) -> tuple[SiteQueue, int]:
    """Waiting jobs with their new priorities, in their order; and the number of jobs without known factors."""
    differences = [
        change.weights.get(name, getattr(site.priority, name)) - getattr(site.priority, name)
        for name in PRIORITY_WEIGHTS
    ]
    waiting, unknown = [], 0
    for live in queue.waiting:
        known = factors.get(live.name) or factors.get(live.name.partition("_")[0])
        unknown += known is None
        more = sum(difference * factor for difference, factor in zip(differences, known or (), strict=False))
        waiting.append(replace(live, priority=max(round(live.priority + more), 1)))
    return replace(queue, waiting=tuple(waiting)), unknown


def compare_queue(
    site: SlurmSite,
    queue: SiteQueue,
    past: SlurmLog | None,
    change: SiteChange,
    factors: Mapping[str, tuple[float, ...]],
    future: SiteFuture = SiteFuture(),
) -> QueueChange:
    """Schedule the live queue on the site and on the changed one, in the same futures."""
    new_site = changed_site(site, change)
    new_queue, unknown = changed_queue(queue, site, change, factors)
    first, last = len(queue.running), len(queue.jobs)
    waits: list[tuple[Floats, Floats]] = []
    reasons: dict[str, int] = {}
    for runs_s, arrivals in queue_futures(site, queue, past, future):
        pair = []
        for where, jobs in ((site, queue), (new_site, new_queue)):
            schedule = play_queue(site_of_now(where), jobs, runs_s, arrivals)
            pair.append(np.where(np.isfinite(schedule.start_s), schedule.start_s, NEVER_S)[first:last])
            reasons |= schedule.reasons
        waits.append((pair[0], pair[1]))
    old, new = (np.array([pair[k] for pair in waits]) for k in (0, 1))  # (future, waiting job)
    notes = [f"{count:,} jobs: {reason}" for reason, count in reasons.items()]
    if change.weights and unknown:
        notes.append(f"{unknown:,} waiting jobs have no factors in sprio; their priorities stay")
    starts = [
        StartChange(live.name, live.job.user, ",".join(live.job.partitions), float(before), float(after))
        for live, before, after in zip(queue.waiting, np.median(old, axis=0), np.median(new, axis=0), strict=True)
    ]
    weights = [{name: float(getattr(each.priority, name)) for name in PRIORITY_WEIGHTS} for each in (site, new_site)]
    ordered = tuple(sorted(starts, key=lambda start: start.new_s - start.old_s))
    return QueueChange(_groups(queue, old, new), ordered, len(waits), weights[0], weights[1], tuple(notes))


def _groups(queue: SiteQueue, old: Floats, new: Floats) -> tuple[GroupChange, ...]:
    if not queue.waiting:
        return ()
    kinds: dict[str, Callable[[Any], str]] = {
        "all": lambda live: "all",
        "partition": lambda live: ",".join(live.job.partitions) or "-",
        "user": lambda live: live.job.user or "-",
    }
    rows = []
    for kind, name_of in kinds.items():
        names = np.array([name_of(live) for live in queue.waiting])
        found = []
        for name in dict.fromkeys(names.tolist()):
            chosen = names == name
            before, after = old[:, chosen].mean(axis=1), new[:, chosen].mean(axis=1)  # (future,)
            low, high = np.quantile(np.where(before > 0, after / np.maximum(before, 1e-9), np.nan), [0.1, 0.9])
            found.append(
                GroupChange(
                    kind, name, int(chosen.sum()), float(before.mean()), float(after.mean()), float(low), float(high)
                )
            )
        rows += sorted(found, key=lambda row: -row.jobs)
    return tuple(rows)
