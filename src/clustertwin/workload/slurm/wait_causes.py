"""What explains waits that the simulation misses: a schedule and its sacct log -> outages and counts of jobs.

An outage is inferred where recorded jobs held few CPUs of a partition, or far fewer than simulated jobs did, or where a
log with node lists shows nodes without a job for an hour or more, while jobs of at least two users waited that would
have fitted there and that the simulation, which knows the site's limits, had started.
Jobs with GPUs, constraints or reservations are no evidence: their own nodes may have been full.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.slurm.site_simulation import SiteSchedule

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEAST_S = 600.0  # shorter spans are no outages; spans that are closer together are one
LATE_S = 120.0  # a start that is this much later than the simulated one needs a cause
FREE_RATIO = 0.5  # a job fits if it needs at most this part of what is free: free CPUs are spread over nodes
FEW_RATIO = 0.2  # of the partition's CPUs: at most this many are in use, or this many less than in the simulation
IDLE_S = 3600.0  # a node without a job for this long may have been out
NODES_RATIO = 0.1  # of the partition's CPUs: at least this many are on such nodes
MOST_MOMENTS = 20_000

#: Why a job started later, or earlier, than in the simulation.
WAIT_CAUSES = {
    "outage": "most of the extra wait lies in an inferred outage",
    "held": "few CPUs were in use, and it would have fitted: a hold, limit or dependency that the log does not show",
    "busy": "many CPUs were in use, or it would not have fitted: other jobs went first",
    "early": "it started earlier than in the simulation",
    "met": f"it started within {LATE_S:.0f} s of the simulated start",
}


@dataclass(frozen=True, slots=True)
class InferredOutage:
    """A span in which a partition was used far less than it could have been, while jobs waited that would fit."""

    partition: str
    start_s: float  # of the log
    end_s: float
    used_ratio: float  # mean share of the partition's CPUs that recorded jobs held
    waiting: int  # jobs that would have fitted at some moment of it


@dataclass(frozen=True, slots=True)
class WaitCauses:
    """How many jobs each cause explains, and the outages; `extra_s` is the sum of extra waits in seconds."""

    jobs: dict[str, int]
    extra_s: dict[str, float]
    outages: tuple[InferredOutage, ...]


def explain_waits(schedule: SiteSchedule) -> WaitCauses:
    """The cause of each difference between recorded and simulated starts."""
    facts = _Facts(schedule)
    moments = facts.moments()
    outages: list[InferredOutage] = []
    jobs, extra_s = dict.fromkeys(WAIT_CAUSES, 0), dict.fromkeys(WAIT_CAUSES, 0.0)
    for name in sorted(set(facts.partitions.tolist())):
        size, used, simulated = facts.use(name, moments)
        low = (used <= FEW_RATIO * size) | (simulated - used >= FEW_RATIO * size)
        free = np.where(low, np.maximum(size - used, 0.0), 0.0)
        unused = facts.unused(name, moments)
        free = np.maximum(free, np.where(unused >= NODES_RATIO * size, unused, 0.0))
        fits = facts.fits(name, moments, free)
        witnesses = {k: fit for k, fit in fits.items() if facts.evidence[k]}
        found = _outages(name, moments, used / max(size, 1.0), witnesses, facts.users)
        outages += found
        out = np.zeros(len(moments), np.bool_)
        for outage in found:
            out |= (moments >= outage.start_s) & (moments <= outage.end_s)
        for k in np.flatnonzero(facts.partitions == name):
            cause = _cause(float(facts.extra_s[k]), fits.get(int(k)), out)
            jobs[cause] += 1
            extra_s[cause] += float(facts.extra_s[k])
    return WaitCauses(jobs, extra_s, tuple(sorted(outages, key=lambda outage: outage.start_s)))


#: The moments from a job's simulated to its recorded start, and at which of them it would have fitted.
Fit = tuple[slice, Bools]


class _Facts:
    """Recorded and simulated times of the jobs that have both, and the CPUs of the site's partitions."""

    def __init__(self, schedule: SiteSchedule) -> None:
        jobs, site = schedule.log.jobs, schedule.site
        start_s = np.array([job.start_s for job in jobs])
        rows = np.flatnonzero(np.isfinite(start_s) & np.isfinite(schedule.start_s))
        kept = [jobs[row] for row in rows]
        self.start_s, self.simulated_s = start_s[rows], schedule.start_s[rows]
        self.simulated_end_s = schedule.end_s[rows]
        self.extra_s = self.start_s - self.simulated_s
        self.end_s = np.array([job.end_s if np.isfinite(job.end_s) else np.inf for job in kept])
        self.ready_s = np.array([max(job.submit_s, job.begin_s) for job in kept])
        self.cpus = schedule.cpus[rows]
        self.users = [job.user for job in kept]
        self.evidence = [not (job.gres or job.constraint or job.reservation) for job in kept]
        names = schedule.partitions()
        self.partitions = np.array([names[row] for row in rows], np.str_)
        sizes = {n: g.cores * g.threads_per_core for g in site.groups if g.available for n in g.names}
        self._node_cpus, self._node_lists = sizes, [job.nodes for job in kept]
        self._nodes = {p.name: set(p.nodes) & sizes.keys() for p in site.partitions}
        self._size = {name: float(sum(sizes[node] for node in nodes)) for name, nodes in self._nodes.items()}

    def moments(self) -> Floats:
        """Moments at an even distance over the log."""
        if not len(self.start_s):
            return np.zeros(0)
        first_s, last_s = float(self.ready_s.min()), float(self.start_s.max())
        return np.arange(first_s, last_s, max(60.0, (last_s - first_s) / MOST_MOMENTS))

    def use(self, name: str, moments: Floats) -> tuple[float, Floats, Floats]:
        """CPUs of a partition, and how many of them recorded and simulated jobs hold at each moment.

        Jobs of partitions that share nodes with it count fully.
        """
        shares = [other for other, nodes in self._nodes.items() if nodes & self._nodes.get(name, set())]
        there = np.isin(self.partitions, shares)
        cpus = self.cpus[there]
        used, simulated = (
            _total(moments, start_s[there], cpus) - _total(moments, end_s[there], cpus)
            for start_s, end_s in ((self.start_s, self.end_s), (self.simulated_s, self.simulated_end_s))
        )
        return self._size.get(name, 0.0), used, simulated

    def unused(self, name: str, moments: Floats) -> Floats:
        """CPUs of the partition's nodes that were out at each moment, by their node lists; 0 if nodes are unknown.

        These nodes run nothing for an hour or more, many of them come back together, and they come back to several
        jobs. One large job for which nodes were kept free also ends many gaps.
        """
        gaps = self._gaps(name)
        ends_s = [gap[1] for gap in gaps]
        change = np.zeros(len(moments) + 1)
        at = 0
        while at < len(gaps):
            group = gaps[at : bisect_right(ends_s, ends_s[at] + LEAST_S)]
            at += len(group)
            enough = sum(gap[2] for gap in group) >= NODES_RATIO * self._size[name]
            if enough and len({gap[3] for gap in group}) > 1:
                for from_s, to_s, cpus, _ in group:
                    first, last = np.searchsorted(moments, [from_s, to_s])
                    change[first] += cpus
                    change[last] -= cpus
        return np.asarray(np.cumsum(change)[:-1])

    def _gaps(self, name: str) -> list[tuple[float, float, float, int]]:
        """Spans of an hour or more between two jobs of a node: begin, end, the node's CPUs, the job that ends it."""
        spans: dict[str, list[tuple[float, float, int]]] = {}
        for k, nodes in enumerate(self._node_lists):
            for node in nodes:
                spans.setdefault(node, []).append((self.start_s[k], self.end_s[k], k))
        gaps = []
        for node in self._nodes.get(name, set()) & spans.keys():
            busy_s = np.inf  # before its first job a node may not have existed
            for start_s, end_s, k in sorted(spans[node]):
                if start_s - busy_s >= IDLE_S:
                    gaps.append((busy_s, start_s, float(self._node_cpus[node]), k))
                busy_s = end_s if busy_s == np.inf else max(busy_s, end_s)
        return sorted(gaps, key=lambda gap: gap[1])

    def fits(self, name: str, moments: Floats, idle: Floats) -> dict[int, Fit]:
        """Jobs of a partition that started late, and when free CPUs held room for them; `idle` is 0 if use is high."""
        found = {}
        for k in np.flatnonzero((self.partitions == name) & (self.extra_s > LATE_S)):
            from_s = max(self.ready_s[k], self.simulated_s[k])
            first, last = np.searchsorted(moments, [from_s, self.start_s[k]])
            span = slice(int(first), int(last))
            found[int(k)] = span, self.cpus[k] <= FREE_RATIO * idle[span]
        return found


def _cause(extra_s: float, fit: Fit | None, out: Bools) -> str:
    if abs(extra_s) <= LATE_S:
        return "met"
    if fit is None:
        return "early"
    span, would_fit = fit
    half = max(len(would_fit), 1) / 2
    return "outage" if out[span].sum() > half else "held" if would_fit.sum() > half else "busy"


def _total(moments: Floats, times_s: Floats, cpus: Floats) -> Floats:
    """CPUs of the jobs whose time has come, at each moment."""
    order = np.argsort(times_s, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(cpus[order])])
    return np.asarray(total[np.searchsorted(times_s[order], moments, side="right")])


def _outages(
    name: str, moments: Floats, used_ratio: Floats, fits: dict[int, Fit], users: list[str]
) -> list[InferredOutage]:
    """Spans in which jobs of two users would have fitted."""
    by_user: dict[str, Bools] = {}
    for k, (span, would_fit) in fits.items():
        by_user.setdefault(users[k], np.zeros(len(moments), np.bool_))[span] |= would_fit
    users_waiting = sum(by_user.values(), np.zeros(len(moments), np.int64))
    several = np.flatnonzero(users_waiting > 1)
    found = []
    for group in np.split(several, np.flatnonzero(np.diff(moments[several]) > LEAST_S) + 1) if len(several) else []:
        first, last = int(group[0]), int(group[-1])
        if moments[last] - moments[first] < LEAST_S:
            continue
        waiting = sum(
            bool(would_fit[max(first - span.start, 0) : max(last + 1 - span.start, 0)].any())
            for span, would_fit in fits.values()
        )
        mean = float(used_ratio[first : last + 1].mean())
        found.append(InferredOutage(name, float(moments[first]), float(moments[last]), mean, waiting))
    return found
