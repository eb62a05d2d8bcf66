"""Vectors of protected units -> their noisy sum, and what may be computed from it without further cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import SystemRandom

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: n -> that many independent standard normal numbers.
Noise = Callable[[int], Floats]


def secret_noise(count: int) -> Floats:
    """From the operating system's source of randomness. Noise from a known seed could be subtracted again."""
    source = SystemRandom()
    return np.array([source.gauss(0.0, 1.0) for _ in range(count)])


@dataclass(frozen=True, slots=True)
class NoisySums:
    """The only way from the log to the model: every number passes `total`."""

    multipliers: Mapping[str, float]
    noise: Noise

    def total(self, query: str, rows: Floats, bound: float = 1.0) -> Floats:
        """(unit, cell) -> (cell,). Rows longer than `bound` are shortened to it; noise is added to their sum."""
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        clipped = rows * np.minimum(1.0, bound / np.maximum(length, 1e-12))
        return np.asarray(clipped.sum(axis=0) + self.multipliers[query] * bound * self.noise(rows.shape[1]))

    def shares(self, query: str, rows: Floats) -> Floats:
        """(unit, cell) -> (cell,) probabilities."""
        return shares(self.total(query, rows), self.multipliers[query])


def unit_counts(unit: Ints, units: int, cell: Ints, cells: int) -> Floats:
    """(unit, cell) how often each cell occurs in each unit."""
    table = np.bincount(unit * cells + cell, minlength=units * cells)
    return table.reshape(units, cells).astype(np.float64)


def shares(noisy: Floats, noise: float = 0.0) -> Floats:
    """Noisy counts -> probabilities. A cell below twice the standard deviation of its noise is taken for empty.

    >>> shares(np.array([6.0, 2.0, -0.5]), noise=0.5).tolist()
    [0.75, 0.25, 0.0]
    """
    certain = np.where(noisy > 2 * noise, noisy, 0.0)
    if not certain.any():
        certain = np.where(noisy == noisy.max(), 1.0, 0.0)
    positive = np.maximum(certain, 0.0)
    return np.asarray(positive / positive.sum())
