"""(ε, δ) and the weights of queries -> the noise of each query, by the accountant of Opacus. Extra [privacy].

All queries are Gaussian mechanisms without subsampling: the sum of vectors, one for each protected unit, of Euclidean
length at most `bound`, plus normal noise of standard deviation `multiplier * bound`. The accountant composes them in
Rényi differential privacy and converts the sum to (ε, δ). Neighbouring logs differ in all the jobs of one unit.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require

#: Orders of the Rényi divergence at which the accountant evaluates the composition.
ORDERS = tuple([1 + x / 20 for x in range(1, 200)] + list(range(11, 128)))
STEPS = 60  # of the bisection


def spent_epsilon(multipliers: Mapping[str, float], delta: float) -> float:
    """The ε of all queries together; 0 without queries, infinite if one of them has no noise."""
    if any(multiplier <= 0 for multiplier in multipliers.values()):
        return float("inf")
    if not multipliers:
        return 0.0
    rdp = require("opacus.accountants.analysis.rdp", "privacy")
    total = np.zeros(len(ORDERS))
    for multiplier in multipliers.values():
        total += rdp.compute_rdp(q=1.0, noise_multiplier=multiplier, steps=1, orders=ORDERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where the best order is the largest; the bound still holds
        epsilon, _ = rdp.get_privacy_spent(orders=ORDERS, rdp=total, delta=delta)
    return float(epsilon)


def noise_multipliers(weights: Mapping[str, float], epsilon: float, delta: float) -> dict[str, float]:
    """Noise for each query so that all together spend at most ε. A query with a larger weight gets less noise."""
    if not epsilon > 0:
        raise SettingsError(f"ε is {epsilon:g}; it must be above zero (inf switches the noise off)")
    if not 0 < delta < 1:
        raise SettingsError(f"δ is {delta:g}; it must lie between 0 and 1")
    if np.isinf(epsilon):
        return dict.fromkeys(weights, 0.0)

    def scaled(scale: float) -> dict[str, float]:
        return {name: scale / np.sqrt(weight) for name, weight in weights.items()}

    low, high = 1e-3, 1e5
    if spent_epsilon(scaled(high), delta) > epsilon:
        raise SettingsError(f"ε = {epsilon:g} with δ = {delta:g} needs more noise than can be accounted for")
    for _ in range(STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if spent_epsilon(scaled(middle), delta) > epsilon else (low, middle)
    return scaled(high)
