"""Steady growth of memory in use: levels over time (row, time) -> for each row whether, how fast and for how long.

A window counts as steady growth if memory grew by similar amounts in each of its eight parts. So a program that
allocates and stops, allocates in a few large steps, or frees again and again has none: a part without growth, a part
with most of the growth, or a fall is enough. A level that was reached shortly before the window is no growth either:
a program that fills and frees its memory in turn rises to the same level each time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Parts of a window.
PARTS = 8
#: The rate from each part to the next is at least and at most this multiple of the mean rate.
LEAST, MOST = 0.55, 1.6
#: The part of a window's samples that must be known, in each of its parts.
KNOWN = 0.5
#: Growth over a window must be at least this part of memory.
SMALLEST = 0.002
#: How far before a window its level must not have been reached, in lengths of the window, and by how much the growth
#: must exceed that: a sample may be the mean of some time, in which a short peak is lower.
BEFORE, ABOVE = 4, 0.15


@dataclass(frozen=True, slots=True)
class Growth:
    """The rows that grow steadily over one window."""

    row: NDArray[np.intp]  # (n,)
    level: NDArray[np.float64]  # (n,) at the end of the window, as a part of all memory
    rate: NDArray[np.float64]  # (n,) per second
    spread: NDArray[np.float64]  # (n,) standard deviation of the rate from part to part, per second
    length_s: float


@dataclass(frozen=True, slots=True)
class GrowthWindow:
    """The last `samples` samples of `levels`, one every `step_s` seconds. `earlier` are further levels before them."""

    levels: NDArray[np.float32]  # (row, time)
    step_s: float
    samples: int
    earlier: NDArray[np.float32]  # (row, any number)

    @property
    def length_s(self) -> float:
        return self.samples * self.step_s

    def highest_before(self, row: NDArray[np.intp]) -> NDArray[np.float32]:
        """(row,) the highest level before the window, at most `BEFORE` lengths of it; -inf if none is known."""
        begin = max(self.levels.shape[1] - (1 + BEFORE) * self.samples, 0)
        before = np.concatenate([self.levels[row, begin : -self.samples], self.earlier[row]], axis=1)
        return np.where(np.isnan(before), -np.inf, before).max(axis=1, initial=-np.inf)


def steady_growth(window: GrowthWindow) -> Growth:
    """The rows that grow steadily over a window."""
    levels, step_s, samples = window.levels, window.step_s, window.samples
    edges = np.linspace(0, samples, PARTS + 1).round().astype(np.intp)
    inside = levels[:, -samples:].astype(np.float64)
    known = ~np.isnan(inside)
    counts = np.add.reduceat(known, edges[:-1], axis=1, dtype=np.intp)  # (row, part)
    row = np.flatnonzero((counts >= KNOWN * np.diff(edges)).all(axis=1))
    sums = np.add.reduceat(np.where(known[row], inside[row], 0.0), edges[:-1], axis=1)
    parts = sums / counts[row]  # (n, part)
    centres_s = (edges[1:] + edges[:-1]) / 2 * step_s
    rates = np.diff(parts, axis=1) / np.diff(centres_s)
    mean = (parts[:, -1] - parts[:, 0]) / (centres_s[-1] - centres_s[0])
    steady = mean * samples * step_s > SMALLEST
    steady &= (rates.min(axis=1) >= LEAST * mean) & (rates.max(axis=1) <= MOST * mean)
    steady &= window.highest_before(row) + ABOVE * mean * window.length_s < parts[:, -1]
    level = parts[:, -1] + mean * (samples * step_s - centres_s[-1])
    return Growth(
        row=row[steady],
        level=np.minimum(level[steady], 1.0),
        rate=mean[steady],
        spread=rates.std(axis=1, ddof=1)[steady],
        length_s=window.length_s,
    )
