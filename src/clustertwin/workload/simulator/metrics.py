"""What a schedule is worth: waits, bounded slowdowns, utilisation, fairness -> means with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of one schedule, over its jobs after trimming."""

    jobs: int
    wait_s: Interval
    turnaround_s: Interval
    bounded_slowdown: Interval
    median_wait_s: float
    p95_wait_s: float
    utilisation_ratio: float  # processor time used over processor time there was, while jobs were coming in
    makespan_s: float
    fairness_ratio: float  # Jain's index over users' mean bounded slowdowns: 1 if all fare alike, 1/users at worst
    worst_user_bounded_slowdown: float


def interval(values: NDArray[np.float64], rng: np.random.Generator, rounds: int = 1000) -> Interval:
    """The mean of a sequence and its bootstrap interval, drawn in blocks.

    Neighbouring jobs wait in the same queue: drawing single jobs would promise far too much certainty.
    """
    n = len(values)
    mean = float(values.mean())
    length = max(1, round(np.sqrt(n)))
    blocks = n // length
    if blocks < 2:
        return Interval(mean, mean, mean)
    parts = values[: blocks * length].reshape(blocks, length).mean(axis=1)  # (block, job) -> (block,)
    drawn = parts[rng.integers(0, blocks, size=(rounds, blocks))].mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    # The blocks leave out a remainder; keep the interval about the mean of all.
    shift = mean - parts.mean()
    return Interval(mean, float(low + shift), float(high + shift))


def bounded_slowdown(wait_s: NDArray[np.float64], run_s: NDArray[np.float64], bound_s: float) -> NDArray[np.float64]:
    """max(1, (wait + run) / max(run, bound)), job by job."""
    return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, bound_s))


def utilisation(
    start_s: NDArray[np.float64],
    end_s: NDArray[np.float64],
    procs: NDArray[np.int64],
    whole: int,
    within: tuple[float, float],
) -> float:
    """The part of a machine's processor time between two moments that these jobs held."""
    first_s, last_s = within
    if last_s <= first_s:
        return 0.0
    held_s = np.clip(end_s, first_s, last_s) - np.clip(start_s, first_s, last_s)
    return float((held_s * procs).sum() / (whole * (last_s - first_s)))


def jain(values: NDArray[np.float64]) -> float:
    """Jain's fairness index: (Σx)² / (n Σx²)."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def by_user(values: NDArray[np.float64], user: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean of every user's values."""
    _, code = np.unique(user, return_inverse=True)
    return np.bincount(code, weights=values) / np.bincount(code)
