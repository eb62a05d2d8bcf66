"""Means of what is known: values and which of them are known -> their mean; NaN where too few are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def known_mean(
    values: NDArray[np.floating], known: NDArray[np.bool_], axis: int | tuple[int, ...], least: int = 1
) -> NDArray[np.float64]:
    """The mean over `axis` of the values that are known; NaN where fewer than `least` are."""
    count = known.sum(axis)
    total = np.where(known, values, 0).sum(axis, dtype=np.float64)
    return np.where(count >= least, total / np.maximum(count, 1), np.nan)
