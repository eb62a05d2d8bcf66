"""Simulate the ranks of a bulk-synchronous MPI job: each computes for a random time, then waits for the slowest.

ranks, seconds, rng -> ticks (rank, second, channel). The waiting times, their correlation between ranks and their
growth with the number of ranks follow from the steps. Only the mean ratios of computing and waiting are fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.simulation.stick_breaking import TICKS


@dataclass(frozen=True, slots=True)
class Barrier:
    """The step of an MPI job, and the ratios of its two states."""

    step_s: tuple[float, float]  # in each step, every rank draws its compute time uniformly from this range
    compute: NDArray[np.float64]  # (channel,) mean ratios while computing
    wait: NDArray[np.float64]  # (channel,) mean ratios while waiting in the collective


def draw_ranks(
    barrier: Barrier, slowness: NDArray[np.float64], seconds: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """(rank, second, channel) ticks; `slowness` (rank,) multiplies each rank's compute time, 1 is healthy."""
    return draw_mixture(barrier, wait_fractions(barrier.step_s, slowness, seconds, rng), rng)


def wait_fractions(
    step_s: tuple[float, float], slowness: NDArray[np.float64], seconds: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(rank, second) the fraction of each second that a rank waits for the others."""
    low_s, high_s = step_s
    steps = int(seconds / (low_s * slowness.max())) + 2  # no step is shorter
    compute_s = rng.uniform(low_s, high_s, (len(slowness), steps)) * slowness[:, None]  # (rank, step)
    length_s = compute_s.max(axis=0)
    ends_s = np.cumsum(length_s)
    waited_s = np.cumsum(length_s - compute_s, axis=1)  # by the end of each step
    clock_s = np.arange(seconds + 1)
    current = np.searchsorted(ends_s, clock_s, side="right")  # the step in progress at each full second
    waited_before_s = np.where(current > 0, waited_s[:, current - 1], 0.0)
    elapsed_s = clock_s - (ends_s[current] - length_s[current])  # in the current step
    total_s = waited_before_s + np.maximum(0, elapsed_s - compute_s[:, current])
    return np.clip(np.diff(total_s, axis=1), 0, 1)


def draw_mixture(barrier: Barrier, waiting: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Ticks of seconds of which a fraction is spent waiting: (…,) -> (…, channel)."""
    ratios = waiting[..., None] * barrier.wait + (1 - waiting[..., None]) * barrier.compute
    return rng.multinomial(TICKS, ratios / ratios.sum(-1, keepdims=True)).astype(np.uint8)
