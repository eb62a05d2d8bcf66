"""Deviation from the job's other threads: means, their noise and the job of each thread -> how far it stands apart.

The measure is the distance from the job's median in units of what chance makes of it, and at least of `FLOOR`: a job
whose threads differ by a percent is not a job gone wrong. In a pair both are equally far from each other; who is the
odd one is then for the other views to say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled

FLOOR = 0.02


@dataclass(frozen=True, slots=True)
class Deviation:
    """One row a thread."""

    size: NDArray[np.int32]  # (thread,) how many threads of its job can be compared, itself among them; 0: no job
    distance: NDArray[np.float32]  # (thread,) of the channel that stands out most; NaN where there is nobody else
    median: NDArray[np.float32]  # (thread, channel) the job's; NaN likewise
    partner: NDArray[np.intp]  # (thread,) the other one of a pair, -1 elsewhere


def deviate(
    mean: NDArray[np.float32], noise: NDArray[np.float32], job: NDArray[np.int32], known: NDArray[np.bool_]
) -> Deviation:
    """Means and their noise (thread, channel), compared within each job; job -1, or not known: not compared."""
    n = len(mean)
    size = np.zeros(n, np.int32)
    median = np.full_like(mean, np.nan)
    typical = np.full_like(noise, np.nan)
    partner = np.full(n, -1, np.intp)
    rows = np.flatnonzero(known & (job >= 0))
    if len(rows):
        order = rows[np.argsort(job[rows], kind="stable")]
        first = np.flatnonzero(np.diff(job[order], prepend=-1))  # of each job, in `order`
        count = np.diff(first, append=len(order))
        size[order] = np.repeat(count, count)
        _medians(mean, order, first, count, median)
        _medians(noise, order, first, count, typical)
        left = first[count == 2]
        partner[order[left]], partner[order[left + 1]] = order[left + 1], order[left]
    # The median of two lies half-way between them.
    apart = np.abs(mean - median) * np.where(size == 2, 2, 1)[:, None]
    distance = (apart / np.sqrt(noise**2 + typical**2 + FLOOR**2)).max(1, initial=0).astype(np.float32)
    alone = size < 2
    median[alone], distance[alone] = np.nan, np.nan
    return Deviation(size, distance, median, partner)


@compiled
def _medians(x, order, first, count, out):  # type: ignore[no-untyped-def]
    """x (thread, channel) -> out (thread, channel), for threads in `order` the median of their group."""
    for group in range(len(first)):
        n = count[group]
        mine = order[first[group] : first[group] + n]
        values = np.empty(n, x.dtype)
        for c in range(x.shape[1]):
            for k in range(n):
                values[k] = x[mine[k], c]
            values.sort()
            middle = (values[(n - 1) // 2] + values[n // 2]) / 2
            for k in range(n):
                out[mine[k], c] = middle
