"""The classes into which sessions are counted. They are fixed here and by the size of the machine, never by the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Time limits that people ask for, in minutes. Without limits, run times are counted in the same classes.
LIMIT_MINUTES = (1, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480, 720, 1080, 1440, 2160, 2880, 4320,
                 5760, 7200, 10080, 20160)  # fmt: skip
LIMITS_S = 60.0 * np.array(LIMIT_MINUTES)
#: The work of a session in hours of the whole machine: the lower end of each class.
WORK_EDGES = (0.0, 2.0**-9, 2.0**-6, 2.0**-4, 2.0**-3, 2.0**-2, 2.0**-1, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
#: Groups of limits: the longest of each but the last.
LIMIT_GROUPS_S = (1800.0, 7200.0, 6 * 3600.0, 12 * 3600.0, 24 * 3600.0)
#: Groups of sizes: the least share of the machine of each but the first.
SIZE_GROUPS = (1 / 64, 1 / 16, 1 / 4, 1 / 2)
#: The lower end of each class of the used share of a limit; the last class is "reached its limit".
RATIO_EDGES = (2.0**-12, 2.0**-7, 2.0**-5, 2.0**-4, 2.0**-3, 2.0**-2, 2.0**-1, 1.0)
LENGTH_CLASSES = 8  # jobs of a session: 1, 2-3, 4-7 … 128 and more
LENGTH_GROUPS = (1, 3)  # the first class of each group but the first: 2 jobs, 8 jobs
GAP_CLASSES = 13  # seconds between jobs of a session: 0, 1, 2-3, 4-7 … up to an hour
ACTIVITY_CLASSES = 14  # sessions of a user: 1, 2-3, 4-7 …
PERIODS, PERIOD_DAYS = 16, 14  # a log is cut into at most this many equal periods, of at least this many days
HOURS = 24


@dataclass(frozen=True, slots=True)
class PublicGrid:
    """The classes of one machine. `with_limits`: whether its jobs have a time limit that differs from the run time."""

    machine: int
    with_limits: bool
    fine_sizes: bool = False  # models that were saved before 0.2.0 have no sizes between powers of two

    @property
    def sizes(self) -> Ints:
        """Powers of two, the whole machine, and for large jobs the size between two powers."""
        powers = 2 ** np.arange(int(np.log2(self.machine)) + 1)
        between = powers[1:] * 3 // 2
        large = between[(between >= self.machine / 4) & (between < self.machine)]
        return np.unique(np.concatenate([powers, large if self.fine_sizes else powers, [self.machine]]))

    @property
    def size_group(self) -> Ints:
        """(size class,) the group of each class."""
        group = np.searchsorted(SIZE_GROUPS, self.sizes / self.machine, side="right")
        return np.maximum(group, 0)

    def classes(self, column: str) -> int:
        return {"length": LENGTH_CLASSES, "size": len(self.sizes), "limit": len(LIMITS_S),
                "work": len(WORK_EDGES)}[column]  # fmt: skip

    def periods(self, days: int) -> int:
        return int(np.clip(days // PERIOD_DAYS, 1, PERIODS))


#: (class,) the group of each class of limits and of lengths.
LIMIT_GROUP = np.searchsorted(LIMIT_GROUPS_S, LIMITS_S, side="left")
LENGTH_GROUP = np.searchsorted(LENGTH_GROUPS, np.arange(LENGTH_CLASSES), side="right")
#: Kinds of sessions: a group of sizes, of limits and of lengths.
KINDS = (len(SIZE_GROUPS) + 1, len(LIMIT_GROUPS_S) + 1, len(LENGTH_GROUPS) + 1)


def nearest(values: Floats, grid: Floats) -> Ints:
    """The class of each value: the closest entry of the grid, on a log scale."""
    middles = np.sqrt(grid[1:] * grid[:-1])
    return np.searchsorted(middles, np.maximum(values, 1e-9)).astype(np.int64)


def power_class(values: Floats, classes: int) -> Ints:
    """0 for less than 1, then a class for each power of two: 1, 2-3, 4-7 …"""
    return np.clip(np.floor(np.log2(np.maximum(values, 0.5))) + 1, 0, classes - 1).astype(np.int64)


def count_class(values: Ints, classes: int) -> Ints:
    """The class of a count: 1, 2-3, 4-7 …"""
    return power_class(values.astype(np.float64), classes + 1) - 1


def edge_class(values: Floats, edges: Sequence[float]) -> Ints:
    """The class whose lower end is the last edge that is not above the value."""
    return np.maximum(np.searchsorted(edges, values, side="right") - 1, 0).astype(np.int64)
