"""Predict start times: the live queue + a scenario (policy, backfilling, machine size) -> start times with intervals.

The run times of the jobs and the future submissions are unknown. A possible future draws both: run times as fractions
of the time limits, as in a log of the past, and new jobs from a generator. Without a log of the past there is only one
future: all jobs run to their limits, and no new jobs are submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import COLUMNS, Jobs
from clustertwin.workload.machine_size import Unit
from clustertwin.workload.simulator.forecast.squeue import LiveQueue
from clustertwin.workload.simulator.simulate_log import Backfill, simulate

#: rng -> jobs that are submitted from now (second 0) on
FutureSubmissions = Callable[[np.random.Generator], Jobs]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A policy, a backfilling method and a machine size to try."""

    name: str
    policy: str
    backfill: Backfill
    procs: int


@dataclass(frozen=True, slots=True)
class StartTimes:
    """The start of each waiting job, in seconds from now: the median and the 80 % interval over the futures."""

    scenario: Scenario
    jobs: tuple[str, ...]  # the Slurm ids of the waiting jobs
    start_s: NDArray[np.float64]  # (waiting,)
    early_s: NDArray[np.float64]
    late_s: NDArray[np.float64]
    mean_wait_s: float
    mean_wait_low_s: float
    mean_wait_high_s: float


def draw_futures(
    queue: LiveQueue, past: Jobs | None, submissions: FutureSubmissions | None, count: int, rng: np.random.Generator
) -> list[Jobs]:
    """Draw `count` futures: the jobs of the queue with run times, and new jobs."""
    if past is None:
        return [queue.jobs]
    fractions = limit_fractions(past)
    futures = []
    for _ in range(count):
        jobs = replace(queue.jobs, run_s=draw_left_s(queue, fractions, rng) - queue.jobs.submit_s)
        futures.append(_append(jobs, submissions(rng)) if submissions else jobs)
    return futures


def limit_fractions(past: Jobs) -> NDArray[np.float64]:
    """The run times of a log as fractions of their limits, sorted."""
    known = (past.request_s > 0) & (past.run_s >= 0)
    if not known.any():
        raise SettingsError("the log of the past has no time limits, so run times cannot be predicted from it")
    return np.sort(np.clip(past.run_s[known] / past.request_s[known], 0.0, 1.0))


def draw_left_s(queue: LiveQueue, fractions: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """(job,) how long each job goes on: its limit times one of the fractions (sorted) that it has not passed yet."""
    limit_s = queue.limit_s
    lowest = np.searchsorted(fractions, queue.elapsed_s / limit_s, side="right")
    ends = np.append(fractions, 1.0)  # a job that has passed every fraction runs to its limit
    drawn = ends[rng.integers(lowest, np.maximum(len(fractions), lowest + 1))]
    return np.maximum((limit_s * drawn - queue.elapsed_s).round(), 1.0)


def predict_start_times(
    queue: LiveQueue, scenario: Scenario, futures: Sequence[Jobs], unit: Unit = "cpus"
) -> StartTimes:
    """The start times of the waiting jobs in one scenario, over all futures."""
    waiting = queue.jobs.id[queue.running :]
    names = queue.names[queue.running :]
    if not len(waiting):
        none = np.zeros(0)
        return StartTimes(scenario, names, none, none, none, 0.0, 0.0, 0.0)
    starts_s = np.full((len(futures), len(waiting)), np.nan)
    for i, jobs in enumerate(futures):
        schedule = simulate(jobs, scenario.procs, scenario.policy, scenario.backfill, unit=unit, kill_at_limit=True)
        index = {int(id): at for at, id in enumerate(schedule.jobs.id)}
        for k, id in enumerate(waiting):
            if int(id) in index:  # a job larger than the machine is not in the schedule
                starts_s[i, k] = schedule.start_s[index[int(id)]]
    fits = ~np.isnan(starts_s).any(axis=0)
    early_s, median_s, late_s = np.full((3, len(waiting)), np.inf)
    if fits.any():
        early_s[fits], median_s[fits], late_s[fits] = np.quantile(starts_s[:, fits], [0.1, 0.5, 0.9], axis=0)
    waits_s = starts_s[:, fits].mean(axis=1) if fits.any() else np.zeros(len(futures))
    low_s, high_s = np.quantile(waits_s, [0.1, 0.9])
    return StartTimes(scenario, names, median_s, early_s, late_s, float(waits_s.mean()), float(low_s), float(high_s))


def _append(jobs: Jobs, submitted: Jobs) -> Jobs:
    """The jobs of the queue followed by new jobs, with ids and users of their own."""
    ids = int(jobs.id.max(initial=0)) + 1 + np.arange(len(submitted))
    users = submitted.user + 1 + int(jobs.user.max(initial=0))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(jobs, name), getattr(submitted, name)]) for name in COLUMNS
    }
    columns["id"][len(jobs) :], columns["user"][len(jobs) :] = ids, users
    return replace(jobs, **columns)
