"""Values in groups -> values like them: an adaptive kernel, as wide as the neighbours in the group are far.

Each value moves at random, up or down alike, by no more than the distance to its neighbours in rank: where a group is
dense it keeps its shape, where it is thin no value is repeated digit by digit. Moves are symmetric, so means hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kernel:
    """How far neighbours count (a share of the group), and the widest move (a share of the value)."""

    share: float = 0.05
    widest: float = 0.1
    least: float = 0.005


def widths(values: Floats, groups: Ints, kernel: Kernel, resolution: float) -> Floats:
    """Half the distance between the neighbours of each value in its group, within the kernel's bounds."""
    order = np.lexsort((values, groups))
    ordered, group = values[order], groups[order]
    begins = np.flatnonzero(np.append(True, np.diff(group) != 0))
    counts = np.diff(np.append(begins, len(values)))
    low, high = np.repeat(begins, counts), np.repeat(begins + counts - 1, counts)
    reach = np.repeat(np.maximum(1, np.round(kernel.share * counts).astype(np.int64)), counts)
    rank = np.arange(len(values))
    above, below = ordered[np.minimum(rank + reach, high)], ordered[np.maximum(rank - reach, low)]
    half = np.where(low == high, np.inf, (above - below) / 2)
    width = np.empty_like(ordered)
    # The least width keeps values that repeat to the last digit from being drawn to the last digit.
    width[order] = np.clip(half, kernel.least * ordered + 2 * resolution, kernel.widest * ordered + 2 * resolution)
    return width


def moved(values: Floats, width: Floats, resolution: float, rng: np.random.Generator) -> Floats:
    """Each value within its width, never below zero, in the log's resolution."""
    drawn = values + np.minimum(width, values) * rng.uniform(-1, 1, len(values))
    return np.round(drawn / resolution) * resolution


def resolution_of(values: Floats) -> float:
    """The coarsest of 1, 0.1, 0.01 and 0.001 in which all values are whole.

    >>> resolution_of(np.array([3.0, 2.5]))
    0.1
    """
    for decimals in (0, 1, 2):
        if np.allclose(values, np.round(values, decimals), rtol=0, atol=1e-6):
            return float(10.0**-decimals)
    return 0.001
