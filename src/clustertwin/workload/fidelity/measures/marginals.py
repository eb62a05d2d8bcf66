"""Distance between the distributions of one column in two logs: KS complement and Wasserstein distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Marginal:
    ks_complement: float  # 1 is the same distribution
    wasserstein_log: float  # mean distance of the quantiles of log(1 + x); 0 is the same distribution


def ks_complement(real: Floats, synthetic: Floats) -> float:
    """1 minus the largest distance between the two cumulative distributions.

    >>> ks_complement(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    0.5
    """
    a, b = np.sort(real), np.sort(synthetic)
    at = np.concatenate([a, b])
    distance = np.searchsorted(a, at, side="right") / len(a) - np.searchsorted(b, at, side="right") / len(b)
    return float(1.0 - np.abs(distance).max())


def wasserstein_log(real: Floats, synthetic: Floats) -> float:
    """The mean distance between the quantiles of log(1 + x): 0.1 means that values differ by about 10 %.

    >>> round(wasserstein_log(np.array([0.0, 0.0]), np.array([np.e - 1, np.e - 1])), 12)
    1.0
    """
    a, b = np.sort(np.log1p(np.maximum(real, 0))), np.sort(np.log1p(np.maximum(synthetic, 0)))
    # Both quantile functions are constant between two neighbouring steps of either distribution.
    steps = np.unique(np.concatenate([np.arange(1, len(a) + 1) / len(a), np.arange(1, len(b) + 1) / len(b)]))
    widths = np.diff(steps, prepend=0.0)
    middles = steps - widths / 2
    quantile_a = a[np.minimum((middles * len(a)).astype(int), len(a) - 1)]
    quantile_b = b[np.minimum((middles * len(b)).astype(int), len(b) - 1)]
    return float(np.sum(widths * np.abs(quantile_a - quantile_b)))


def marginals(real: ComparedLog, synthetic: ComparedLog, names: tuple[str, ...]) -> dict[str, Marginal]:
    """The distances of each named column."""
    pairs = {name: (real.column(name), synthetic.column(name)) for name in names}
    return {name: Marginal(ks_complement(a, b), wasserstein_log(a, b)) for name, (a, b) in pairs.items()}
