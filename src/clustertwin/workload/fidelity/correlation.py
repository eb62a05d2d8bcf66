"""Two tables -> how their columns move together: Pearson and rank (Spearman) matrices, and the gap between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.fidelity.sample import Sample

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Correlation:
    columns: tuple[str, ...]
    real: Floats  # (column, column), Spearman
    synthetic: Floats
    gap: float  # mean |real - synthetic| over the pairs, Spearman; 0: the same
    pearson_gap: float
    similarity: float  # mean of 1 - gap/2 over the pairs, Pearson: the published "pair trends"


def ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share their mean rank.

    >>> ranks(np.array([10.0, 20.0, 10.0])).tolist()
    [1.5, 3.0, 1.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], dtype=np.float64)


def pearson(table: Floats) -> Floats:
    """(job, column) -> (column, column); a column that never varies goes with nothing: 0."""
    centred = table - table.mean(axis=0)
    lengths = np.sqrt((centred**2).sum(axis=0))
    unit = np.divide(centred, lengths, out=np.zeros_like(centred), where=lengths > 0)
    return np.asarray(unit.T @ unit)


def spearman(table: Floats) -> Floats:
    """(job, column) -> (column, column)"""
    return pearson(np.column_stack([ranks(column) for column in table.T]))


def similarity(real: Floats, synthetic: Floats) -> Floats:
    """1 - |difference| / 2, pair by pair: 1 if alike, 0 if opposite."""
    return np.asarray(1 - np.abs(real - synthetic) / 2)


def correlation(real: Sample, synthetic: Sample, names: tuple[str, ...]) -> Correlation:
    """The matrices side by side, and their mean gaps over the pairs of columns."""
    a, b = real.table(names), synthetic.table(names)
    rank_a, rank_b, line_a, line_b = spearman(a), spearman(b), pearson(a), pearson(b)
    pairs = np.triu_indices(len(names), k=1)
    if len(pairs[0]) == 0:
        return Correlation(names, rank_a, rank_b, 0.0, 0.0, 1.0)
    gap, line_gap = np.abs(rank_a - rank_b)[pairs].mean(), np.abs(line_a - line_b)[pairs].mean()
    return Correlation(
        names, rank_a, rank_b, float(gap), float(line_gap), float(similarity(line_a, line_b)[pairs].mean())
    )
