"""Values in groups -> similar values, by an adaptive kernel: its width is the distance to neighbours in the group.

Each value moves at random, up or down with equal probability, by no more than the distance to its neighbours in rank. A
dense group keeps its shape, and in a sparse group no value is repeated exactly. Moves are symmetric, so means stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


#: The smallest width: a share of the value, and steps of the resolution.
LEAST, LEAST_STEPS = 0.005, 2.0


@dataclass(frozen=True, slots=True)
class SmoothingKernel:
    share: float = 0.05  # how far neighbours count, as a share of the group
    widest: float = 0.1  # largest move, as a share of the value
    short: float = np.inf  # largest of the `LEAST_STEPS`, as a share of the value: short values keep their distribution


def widths(values: Floats, groups: Ints, kernel: SmoothingKernel, resolution: float) -> Floats:
    """Half the distance between the neighbours of each value in its group, within the bounds of the kernel."""
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
    # The smallest width also moves values that occur several times in the log.
    floor = LEAST_STEPS * resolution * np.ones_like(ordered)
    if np.isfinite(kernel.short):
        floor = np.minimum(floor, kernel.short * ordered)
    width[order] = np.clip(half, LEAST * ordered + floor, kernel.widest * ordered + floor)
    return width


def moved(
    values: Floats, width: Floats, resolution: float, rng: np.random.Generator, least: Floats | float = 0.0
) -> Floats:
    """Each value moved within its width, never below `least`, in multiples of the resolution."""
    reach = np.minimum(width, np.maximum(values - least, 0.0))
    return np.round((values + reach * rng.uniform(-1, 1, len(values))) / resolution) * resolution
