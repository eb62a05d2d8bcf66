"""Compare schedules of one log: simulated with recorded waits, or one configuration with another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.workload.slurm.joblog.job_table import SlurmLog
from clustertwin.workload.slurm.site_simulation import SiteSchedule

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Simulated against recorded waits of a group of jobs."""

    name: str
    jobs: int
    recorded_wait_s: float
    simulated_wait_s: float
    spearman: float
    median_error_s: float  # of the absolute differences
    p90_error_s: float
    within_minute_ratio: float
    spearman_of_cycles: float  # of waits in whole scheduling cycles: within one, the order is Slurm's timing
    within_cycle_ratio: float  # jobs that wait less than a cycle, as recorded and as simulated


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A group's mean wait under two configurations, over jobs that start under both."""

    name: str
    jobs: int
    old_wait_s: float
    new_wait_s: float
    ratio_low: float = np.nan  # 80 % of the futures lie between these; nan without futures
    ratio_high: float = np.nan

    @property
    def ratio(self) -> float:
        return self.new_wait_s / self.old_wait_s if self.old_wait_s > 0 else np.nan


def spearman(one: Floats, other: Floats) -> float:
    """The rank correlation; equal values share their mean rank.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 15.0]))
    0.5
    """
    if len(one) < 2:
        return float("nan")
    ranks = [_ranks(one), _ranks(other)]
    if any(rank.std() == 0 for rank in ranks):
        return float("nan")
    return round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 12)


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def labels(schedule: SiteSchedule) -> dict[str, list[str]]:
    """The groups in which people ask for waits: partition, QOS, user and size."""
    jobs = schedule.log.jobs
    sizes = [max(job.nodes_min, 1) for job in jobs]
    return {
        "partition": schedule.partitions(),
        "qos": [job.qos or "-" for job in jobs],
        "user": [job.user or "-" for job in jobs],
        "nodes": ["1" if n == 1 else "2-4" if n <= 4 else "5-16" if n <= 16 else "17 and more" for n in sizes],
    }


def agreement(schedule: SiteSchedule) -> dict[str, list[Agreement]]:
    """All jobs, and each group, by how well the simulated waits meet the recorded ones."""
    recorded = np.array([job.start_s - job.submit_s for job in schedule.log.jobs])
    simulated = schedule.wait_s
    both = np.isfinite(recorded) & np.isfinite(simulated)
    if not both.any():
        raise TraceError("the log", "no job has both a recorded and a simulated start; validate needs a sacct log")
    groups = {"all": ["all"] * len(recorded), **labels(schedule)}
    cycle_s = max(float(schedule.site.scheduler.bf_interval), 1.0)
    waits_s = np.where(both, np.stack([recorded, simulated]), np.nan)
    return {kind: _agreements(names, waits_s, cycle_s) for kind, names in groups.items()}


def _agreements(names: list[str], waits_s: Floats, cycle_s: float) -> list[Agreement]:
    """Rows of `waits_s` are recorded and simulated waits; nan: one of them is missing."""
    rows, words = [], np.array(names)
    both = np.isfinite(waits_s[0])
    for name in dict.fromkeys(names):
        chosen = both & (words == name)
        if not chosen.any():
            continue
        real, ours = waits_s[:, chosen]
        cycles = np.floor(waits_s[:, chosen] / cycle_s)
        error = np.abs(ours - real)
        median, high = np.quantile(error, [0.5, 0.9])
        rows.append(
            Agreement(
                name, int(chosen.sum()), float(real.mean()), float(ours.mean()), spearman(real, ours), float(median),
                float(high), float((error <= 60).mean()), spearman(*cycles), float((cycles == 0).all(axis=0).mean()),
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: -row.jobs)


def changes(old: SiteSchedule, new: SiteSchedule) -> dict[str, list[ConfigChange]]:
    """Mean waits of all jobs and of each group under two configurations."""
    both = np.isfinite(old.wait_s) & np.isfinite(new.wait_s)
    groups = {"all": ["all"] * len(both), **labels(old)}
    table = {}
    for kind, names in groups.items():
        words = np.array(names)
        rows = [
            ConfigChange(name, int(chosen.sum()), float(old.wait_s[chosen].mean()), float(new.wait_s[chosen].mean()))
            for name in dict.fromkeys(names)
            if (chosen := both & (words == name)).any()
        ]
        table[kind] = sorted(rows, key=lambda row: -row.jobs)
    return table


def unused(schedule: SiteSchedule, log: SlurmLog) -> list[str]:
    """What the site and the log say that had no part in the simulation, with counts."""
    lines = schedule.site.report.lines("not modelled", "unknown", "assumed")
    lines += log.report.lines("not modelled", "unknown", "assumed")
    return lines + [f"{count:,} jobs: {reason}" for reason, count in schedule.reasons.most_common()]
