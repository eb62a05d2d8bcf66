"""Whether a learned policy with a reward of health places jobs better than a rule that avoids unfit nodes (simulated).

    python benchmarks/health_reward.py KTH-SP2.easy.swf.gz 100

Nodes become sick at random and slow every job that starts on them: the slowest node sets the pace of a job, and its
limit stays. Telemetry reports a sick node ten minutes later (`ClusterHealth.unfit_nodes`), never reports one in ten,
and accuses healthy nodes now and then. Jobs of a real log are started in the order of submission with EASY backfilling.
The placements differ only in what they do with unfit nodes:

blind      does not hear of them
avoid      takes fit nodes first, and unfit ones before a job waits
drain      takes unfit nodes only for a job that does not fit otherwise
learned    decides for each job whether it waits or takes unfit nodes. The weights are learned on the first half of the
           log by the cross-entropy method, with a reward of throughput, or of throughput and health

All are judged on the second half, with other sick nodes.
"""

from __future__ import annotations

import argparse
import heapq
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.job_health import ClusterHealth
from clustertwin.workload.formats import read

HEARD_AFTER_S = 600.0
SICK_EVERY_S, SICK_FOR_S = 20 * 86_400.0, 86_400.0
ACCUSED_EVERY_S, ACCUSED_FOR_S = 200 * 86_400.0, 86_400.0


@dataclass(frozen=True)
class Work:
    """One job: when it is submitted, how long it runs on healthy nodes, its limit and its nodes."""

    submit_s: float
    run_s: float
    limit_s: float
    nodes: int


@dataclass(frozen=True)
class Spell:
    """A time in which a node is sick, or is accused of it."""

    begin_s: float
    end_s: float
    slow: float  # 1: healthy
    heard: bool


@dataclass(frozen=True)
class Result:
    wait_s: float
    slowdown: float
    killed: int  # jobs that reached their limit only because of a sick node
    wasted_node_hours: float  # added by sick nodes, and all of the jobs that were killed


#: The job, the fit and the unfit nodes that are free, the jobs that wait -> whether it may take unfit nodes now.
Accept = Callable[[Work, int, int], bool]


class Cluster:
    """The nodes, with the times at which each is sick."""

    def __init__(self, nodes: int, begin_s: float, end_s: float, rng: np.random.Generator) -> None:
        self.size = nodes
        self._spells = [
            _spells(begin_s, end_s, SICK_EVERY_S, SICK_FOR_S, True, rng)
            + _spells(begin_s, end_s, ACCUSED_EVERY_S, ACCUSED_FOR_S, False, rng)
            for _ in range(nodes)
        ]

        changes = {at for spells in self._spells for s in spells for at in (s.begin_s + HEARD_AFTER_S, s.end_s)}
        self._changes_s = sorted(changes)
        self._health: dict[int, ClusterHealth] = {}  # between two changes it stays as it is

    def slow(self, node: int, now_s: float) -> float:
        return max((s.slow for s in self._spells[node] if s.begin_s <= now_s < s.end_s), default=1.0)

    def health(self, now_s: float) -> ClusterHealth:
        """What telemetry says now."""
        span = bisect_right(self._changes_s, now_s)
        if span not in self._health:
            self._health[span] = self._heard(now_s)
        return self._health[span]

    def _heard(self, now_s: float) -> ClusterHealth:
        unfit = (
            str(node)
            for node, spells in enumerate(self._spells)
            if any(s.heard and s.begin_s + HEARD_AFTER_S <= now_s < s.end_s for s in spells)
        )
        return ClusterHealth(unfit_nodes=frozenset(unfit))


def _spells(
    begin_s: float, end_s: float, every_s: float, for_s: float, sick: bool, rng: np.random.Generator
) -> list[Spell]:
    found, at_s = [], begin_s + rng.exponential(every_s)
    while at_s < end_s:
        until_s = at_s + rng.exponential(for_s)
        heard = bool(rng.random() < 0.9) if sick else True
        found.append(Spell(at_s, until_s, float(rng.uniform(1.3, 3.0)) if sick else 1.0, heard))
        at_s = until_s + rng.exponential(every_s)
    return found


def place(jobs: list[Work], cluster: Cluster, accept: Accept | None) -> Result:
    """Run the jobs. `accept` None: the placement does not hear of unfit nodes."""
    free = set(range(cluster.size))
    running: list[tuple[float, float, tuple[int, ...]]] = []  # end, end by the limit, nodes
    waiting: list[Work] = []
    waits, slowdowns, killed, wasted = [], [], 0, 0.0
    arrivals = iter(jobs)
    following = next(arrivals, None)
    while following is not None or running:
        now_s = min(running[0][0] if running else math.inf, following.submit_s if following else math.inf)
        while running and running[0][0] <= now_s:
            free.update(heapq.heappop(running)[2])
        while following is not None and following.submit_s <= now_s:
            waiting.append(following)
            following = next(arrivals, None)
        if not waiting or not free:
            continue
        unfit = set() if accept is None else {int(node) for node in cluster.health(now_s).unfit_nodes}
        fit_free, unfit_free = sorted(free - unfit), sorted(free & unfit)
        shadow_s, spare = math.inf, 0  # of the job that waits first
        left: list[Work] = []
        for job in waiting:
            takes = accept is None or job.nodes > cluster.size - len(unfit) or accept(job, len(fit_free), len(waiting))
            usable = len(fit_free) + (len(unfit_free) if takes else 0)
            may = job.nodes <= usable and (not left or now_s + job.limit_s <= shadow_s or job.nodes <= spare)
            if not may:
                if not left:
                    shadow_s, spare = _reservation(job, usable, running, set() if takes else unfit)
                left.append(job)
                continue
            if left and now_s + job.limit_s > shadow_s:
                spare -= job.nodes
            chosen = (fit_free + unfit_free)[: job.nodes]
            fit_free, unfit_free = fit_free[job.nodes :], unfit_free[max(job.nodes - len(fit_free), 0) :]
            free.difference_update(chosen)
            slow_s = job.run_s * max(cluster.slow(node, now_s) for node in chosen)
            real_s = min(slow_s, job.limit_s)
            heapq.heappush(running, (now_s + real_s, now_s + job.limit_s, tuple(chosen)))
            ends_early = slow_s > job.limit_s
            killed += ends_early
            wasted += job.nodes * (real_s if ends_early else real_s - job.run_s) / 3600
            waits.append(now_s - job.submit_s)
            slowdowns.append(max((waits[-1] + real_s) / max(job.run_s, 10.0), 1.0))
        waiting = left
    return Result(float(np.mean(waits)), float(np.mean(slowdowns)), killed, wasted)


def _reservation(
    job: Work, usable: int, running: list[tuple[float, float, tuple[int, ...]]], unfit: set[int]
) -> tuple[float, int]:
    """When the job can start at the latest, and how many nodes are then left."""
    for _, end_s, nodes in sorted(running, key=lambda entry: entry[1]):
        usable += sum(node not in unfit for node in nodes)
        if usable >= job.nodes:
            return end_s, usable - job.nodes
    return math.inf, 0


def learned(weights: NDArray[np.float64], size: int) -> Accept:
    """A policy of five weights: it takes unfit nodes if their sum is positive."""

    def accept(job: Work, fit_free: int, waiting: int) -> bool:
        unfit_share = max(job.nodes - fit_free, 0) / job.nodes
        values = (1.0, unfit_share, math.log(job.limit_s / 3600), math.log(waiting), job.nodes / size)
        return float(np.dot(weights, values)) > 0

    return accept


def train(
    jobs: list[Work], size: int, health_weight: float, rng: np.random.Generator, rounds: int = 15
) -> NDArray[np.float64]:
    """The cross-entropy method: the mean of the best quarter of the weights becomes the next mean."""
    mean, spread = np.zeros(5), np.full(5, 2.0)
    for _ in range(rounds):
        begin = int(rng.integers(0, len(jobs) - 800))
        part = jobs[begin : begin + 800]
        cluster = Cluster(size, part[0].submit_s, part[-1].submit_s + 30 * 86_400, rng)
        tried = mean + spread * rng.standard_normal((16, 5))
        work = sum(job.run_s * job.nodes for job in part) / 3600
        rewards = []
        for weights in tried:
            result = place(part, cluster, learned(weights, size))
            rewards.append(-result.slowdown - health_weight * 100 * result.wasted_node_hours / work)
        best = tried[np.argsort(rewards)[-4:]]
        mean, spread = best.mean(0), np.maximum(best.std(0), 0.2)
    return mean


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("nodes", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=0, help="jobs of the second half; 0: all")
    options = parser.parse_args()
    table = read(options.log, lenient=True)
    rows = zip(table.submit_s, table.run_s, table.request_s, table.cpus, strict=True)
    jobs = [
        Work(float(submit), float(run), float(max(limit, run)), int(min(cpus, options.nodes)))
        for submit, run, limit, cpus in rows
        if run > 0 and limit > 0 and cpus > 0
    ]
    half = len(jobs) // 2
    past, judged = jobs[:half], jobs[half:][: options.jobs or None]
    totals: dict[str, list[Result]] = {}
    for seed in range(options.seeds):
        rng = np.random.default_rng(seed)
        policies: dict[str, Accept | None] = {
            "blind": None,
            "avoid": lambda *_: True,
            "drain": lambda *_: False,
            "learned, throughput": learned(train(past, options.nodes, 0.0, rng), options.nodes),
            "learned, and health": learned(train(past, options.nodes, 1.0, rng), options.nodes),
        }
        sick = np.random.default_rng(1000 + seed)
        cluster = Cluster(options.nodes, judged[0].submit_s, judged[-1].submit_s + 30 * 86_400, sick)
        for name, accept in policies.items():
            totals.setdefault(name, []).append(place(judged, cluster, accept))
    print(f"{options.log.name}, second half, {len(judged)} jobs, {options.seeds} seeds: mean and range (simulated)")
    print(f"{'':<20}{'wait, s':>22}{'bounded slowdown':>22}{'killed':>18}{'wasted node-hours':>26}")
    for name, results in totals.items():
        columns = (
            ([r.wait_s for r in results], 22, ".0f"), ([r.slowdown for r in results], 22, ".1f"),
            ([float(r.killed) for r in results], 18, ".0f"), ([r.wasted_node_hours for r in results], 26, ".0f"),
        )  # fmt: skip
        print(f"{name:<20}" + "".join(f"{_spread(values, form):>{width}}" for values, width, form in columns))


def _spread(values: list[float], form: str) -> str:
    return f"{np.mean(values):{form}} ({min(values):{form}}–{max(values):{form}})"


if __name__ == "__main__":
    main()
