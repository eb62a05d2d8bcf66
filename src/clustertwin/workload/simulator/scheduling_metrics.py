"""Metrics of a schedule: waits, bounded slowdowns, utilisation, fairness -> means with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """`2,357 (95 %: 1,542 to 3,290)`."""
        mean, low, high = (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" for value in
                           (self.mean, self.low, self.high))  # fmt: skip
        return f"{mean} (95 %: {low} to {high})"


@dataclass(frozen=True, slots=True, repr=False)
class ScheduleMetrics:
    """The metrics of one schedule, over the jobs that remain after trimming."""

    jobs: int
    wait_s: MeanInterval
    turnaround_s: MeanInterval
    bounded_slowdown: MeanInterval
    median_wait_s: float
    p95_wait_s: float
    utilisation_ratio: float  # used processor time over available processor time, while jobs are submitted
    makespan_s: float
    fairness_ratio: float  # Jain's index of the users' mean bounded slowdowns: 1 if all are equal, 1/users at worst
    worst_user_bounded_slowdown: float

    def __repr__(self) -> str:
        return (
            f"<ScheduleMetrics: {self.jobs:,} jobs, mean wait {self.wait_s} s, bounded slowdown "
            f"{self.bounded_slowdown}, utilisation {self.utilisation_ratio:.3f}, fairness {self.fairness_ratio:.3f}>"
        )


def mean_interval(values: NDArray[np.float64], rng: np.random.Generator, resamples: int = 1000) -> MeanInterval:
    """The mean of a sequence and its interval, by a block bootstrap.

    Neighbouring jobs wait in the same queue, so their values are correlated. Resampling single jobs would give an
    interval that is far too narrow.
    """
    n = len(values)
    mean = float(values.mean())
    block_length = max(1, round(np.sqrt(n)))
    blocks = n // block_length
    if blocks < 2:
        return MeanInterval(mean, mean, mean)
    block_means = values[: blocks * block_length].reshape(blocks, block_length).mean(axis=1)  # (block,)
    resampled = block_means[rng.integers(0, blocks, size=(resamples, blocks))].mean(axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    # The blocks leave out a remainder; shift the interval to the mean of all values.
    shift = mean - block_means.mean()
    return MeanInterval(mean, float(low + shift), float(high + shift))


def bounded_slowdown(wait_s: NDArray[np.float64], run_s: NDArray[np.float64], bound_s: float) -> NDArray[np.float64]:
    """max(1, (wait + run) / max(run, bound)) of each job."""
    return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, bound_s))


def utilisation(
    start_s: NDArray[np.float64],
    end_s: NDArray[np.float64],
    job_procs: NDArray[np.int64],
    machine_procs: int,
    between_s: tuple[float, float],
) -> float:
    """The share of a machine's processor time between two times that these jobs use."""
    first_s, last_s = between_s
    if last_s <= first_s:
        return 0.0
    used_s = np.clip(end_s, first_s, last_s) - np.clip(start_s, first_s, last_s)
    return float((used_s * job_procs).sum() / (machine_procs * (last_s - first_s)))


def jain_index(values: NDArray[np.float64]) -> float:
    """Jain's fairness index: (Σx)² / (n Σx²)."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def mean_by_user(values: NDArray[np.float64], user: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean value of each user."""
    _, code = np.unique(user, return_inverse=True)
    return np.bincount(code, weights=values) / np.bincount(code)
