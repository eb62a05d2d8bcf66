"""Deviation from the job's other threads: means, their noise and the job of each thread -> its distance from its job.

The distance from the job's median is measured in standard errors, and in at least `FLOOR`: threads of a healthy job can
differ by a percent. The two threads of a pair are equally far from each other; which of them deviates is decided by
other views.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled

FLOOR = 0.02


@dataclass(frozen=True, slots=True)
class Deviation:
    """One row per thread."""

    group_size: NDArray[np.int32]  # (thread,) comparable threads of its job, including itself; 0: no job
    distance: NDArray[np.float32]  # (thread,) of the channel that deviates most; NaN without peers
    median: NDArray[np.float32]  # (thread, channel) of the job; NaN without peers
    partner: NDArray[np.intp]  # (thread,) the row of the other thread of a pair, -1 elsewhere


def measure_deviation(
    mean: NDArray[np.float32], noise: NDArray[np.float32], job: NDArray[np.int32], known: NDArray[np.bool_]
) -> Deviation:
    """Compare means and their noise (thread, channel) within each job; leave out threads without a job or not known."""
    n = len(mean)
    group_size = np.zeros(n, np.int32)
    median = np.full_like(mean, np.nan)
    typical_noise = np.full_like(noise, np.nan)
    partner = np.full(n, -1, np.intp)
    rows = np.flatnonzero(known & (job >= 0))
    if len(rows):
        order = rows[np.argsort(job[rows], kind="stable")]
        first = np.flatnonzero(np.diff(job[order], prepend=-1))  # of each job, in `order`
        count = np.diff(first, append=len(order))
        group_size[order] = np.repeat(count, count)
        _medians(mean, order, first, count, median)
        _medians(noise, order, first, count, typical_noise)
        left = first[count == 2]
        partner[order[left]], partner[order[left + 1]] = order[left + 1], order[left]
    # The median of two lies half-way between them.
    difference = np.abs(mean - median) * np.where(group_size == 2, 2, 1)[:, None]
    distance = (difference / np.sqrt(noise**2 + typical_noise**2 + FLOOR**2)).max(1, initial=0).astype(np.float32)
    alone = group_size < 2
    median[alone], distance[alone] = np.nan, np.nan
    return Deviation(group_size, distance, median, partner)


@compiled
def _medians(x, order, first, count, out):  # type: ignore[no-untyped-def]
    """x (thread, channel) -> out (thread, channel): for each thread in `order`, the median of its group."""
    for group in range(len(first)):
        n = count[group]
        members = order[first[group] : first[group] + n]
        values = np.empty(n, x.dtype)
        for c in range(x.shape[1]):
            for k in range(n):
                values[k] = x[members[k], c]
            values.sort()
            middle = (values[(n - 1) // 2] + values[n // 2]) / 2
            for k in range(n):
                out[members[k], c] = middle
