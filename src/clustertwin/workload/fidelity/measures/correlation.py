"""Correlation between columns in two logs: Pearson and Spearman matrices, and the gap between real and synthetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Correlation:
    columns: tuple[str, ...]
    real: Floats  # (column, column), Spearman
    synthetic: Floats
    gap: float  # mean |real - synthetic| over the pairs, Spearman; 0 is equal
    pearson_gap: float
    similarity: float  # mean of 1 - gap/2 over the pairs, Pearson; published as "pair trends"


def ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values get their mean rank.

    >>> ranks(np.array([10.0, 20.0, 10.0])).tolist()
    [1.5, 3.0, 1.5]
    """
    return ranks_of_places(np.unique(values, return_inverse=True)[1])


def ranks_of_places(place: NDArray[np.int64]) -> Floats:
    """The same, if the places of the values among distinct values are known. Places may be unused."""
    counts = np.bincount(place)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], dtype=np.float64)


def pearson(table: Floats) -> Floats:
    """(job, column) -> (column, column); a constant column has correlation 0 with every column."""
    centred = table - table.mean(axis=0)
    lengths = np.sqrt((centred**2).sum(axis=0))
    unit = np.divide(centred, lengths, out=np.zeros_like(centred), where=lengths > 0)
    return np.asarray(unit.T @ unit)


def spearman(table: Floats) -> Floats:
    """(job, column) -> (column, column)"""
    return pearson(np.column_stack([ranks(column) for column in table.T]))


def similarity(real: Floats, synthetic: Floats) -> Floats:
    """1 - |difference| / 2 of each pair: 1 is equal, 0 is opposite."""
    return np.asarray(1 - np.abs(real - synthetic) / 2)


def correlation(real: ComparedLog, synthetic: ComparedLog, names: tuple[str, ...]) -> Correlation:
    """Both Spearman matrices, and the mean gaps over the pairs of columns."""
    a, b = real.table(names), synthetic.table(names)
    rank_a, rank_b, pearson_a, pearson_b = spearman(a), spearman(b), pearson(a), pearson(b)
    pairs = np.triu_indices(len(names), k=1)
    if len(pairs[0]) == 0:
        return Correlation(names, rank_a, rank_b, 0.0, 0.0, 1.0)
    gap, pearson_gap = np.abs(rank_a - rank_b)[pairs].mean(), np.abs(pearson_a - pearson_b)[pairs].mean()
    pair_score = similarity(pearson_a, pearson_b)[pairs].mean()
    return Correlation(names, rank_a, rank_b, float(gap), float(pearson_gap), float(pair_score))
