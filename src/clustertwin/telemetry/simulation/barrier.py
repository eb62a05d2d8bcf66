"""Draw the ranks of an MPI job from what it does: compute for a random time, then wait for the slowest.

ranks, seconds, rng -> ticks (rank, second, channel). What a rank waits, how ranks wait for each other and how
waiting grows with their number follow from the steps; only what a second of computing and a second of waiting
look like to the kernel is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.simulation.shares import TICKS


@dataclass(frozen=True, slots=True)
class Barrier:
    """An MPI job's step and its two kinds of seconds."""

    step_s: tuple[float, float]  # every rank draws its own compute time from here, each step
    compute: NDArray[np.float64]  # (channel,) mean ratios while computing
    wait: NDArray[np.float64]  # (channel,) mean ratios while waiting in the collective


def draw_ranks(
    barrier: Barrier, slowness: NDArray[np.float64], seconds: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """(rank, second, channel) ticks; `slowness` (rank,) stretches each rank's computing, 1 is healthy."""
    waiting = wait_shares(barrier.step_s, slowness, seconds, rng)
    return mix(barrier, waiting, rng)


def wait_shares(
    step_s: tuple[float, float], slowness: NDArray[np.float64], seconds: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(rank, second) the part of each second that a rank waits for the others."""
    low_s, high_s = step_s
    steps = int(seconds / (low_s * slowness.max())) + 2  # no step is shorter
    busy_s = rng.uniform(low_s, high_s, (len(slowness), steps)) * slowness[:, None]  # (rank, step)
    step = busy_s.max(axis=0)
    ends_s = np.cumsum(step)
    waited_s = np.cumsum(step - busy_s, axis=1)  # by the end of each step
    clock_s = np.arange(seconds + 1)
    now = np.searchsorted(ends_s, clock_s, side="right")  # the step under way at each full second
    done_s = np.where(now > 0, waited_s[:, now - 1], 0.0)
    into_s = clock_s - (ends_s[now] - step[now])
    total_s = done_s + np.maximum(0, into_s - busy_s[:, now])
    return np.clip(np.diff(total_s, axis=1), 0, 1)


def mix(barrier: Barrier, waiting: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Ticks of seconds that are partly waited: (…,) -> (…, channel)."""
    ratios = waiting[..., None] * barrier.wait + (1 - waiting[..., None]) * barrier.compute
    return rng.multinomial(TICKS, ratios / ratios.sum(-1, keepdims=True)).astype(np.uint8)
