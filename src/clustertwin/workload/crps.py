"""Judge a distribution by what happened: draws (draw,), the truth -> the continuous ranked probability score."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def crps(draws: NDArray[np.float64], truth: float) -> float:
    """The mean distance from the truth minus half the mean distance of the draws from each other, in their unit.

    Less is better. The score of a single draw is its error.

    >>> crps(np.array([3.0, 1.0]), 2.0), crps(np.array([5.0]), 2.0)
    (0.5, 3.0)
    """
    n = len(draws)
    spread = float(((2 * np.arange(1, n + 1) - n - 1) * np.sort(draws)).sum()) / n**2
    return float(np.abs(draws - truth).mean()) - spread
