"""From a statistic to a p-value: how a view looks on normal data -> -log10 of how often it looks this strange.

Below a high quantile the sample itself says how often. Above it a generalised Pareto distribution goes on where the
sample ends, so that scores still tell strange from stranger; its shape is kept from claiming an end of the world. An
event is what happens to one window in a million, and a night may have a few hundred to learn that from: a small sample
gives its tail more of itself, and all are taken for a little heavier than they look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError

Array = NDArray[np.floating]

FROM = 0.98  # the quantile where the fitted tail takes over …
EXCESSES = 100  # … or a lower one that leaves so many to fit it to …
LOWEST = 0.9  # … but none below this
CAUTION = 0.5  # standard errors that the shape is raised by
KNOTS = 257  # quantiles kept of the sample below it
HEAVIEST = 0.5  # shapes beyond have no variance; from a few dozen excesses they are noise
_ERROR = 1.15  # √(4/3): the standard error of the shape is this over the root of the excesses, where it is near 0
ENOUGH = 50  # a sample smaller than this has no tail to speak of


@dataclass(frozen=True, slots=True)
class Tail:
    """The distribution of one statistic on normal data."""

    knots: NDArray[np.float32]  # (KNOTS,) evenly spaced quantiles, from the least to quantile `start`
    shape: float
    scale: float
    start: float = FROM

    def surprise(self, x: Array) -> NDArray[np.float64]:
        """-log10 of the part of normal data that is at least `x`; rises with `x`, NaN stays NaN."""
        below = np.interp(x, self.knots, np.linspace(0, self.start, len(self.knots)))
        excess = np.maximum(np.asarray(x, np.float64) - float(self.knots[-1]), 0) / self.scale
        decay = np.log1p(self.shape * excess) / self.shape if self.shape > 1e-6 else excess
        return -np.log10(1 - below) + decay / np.log(10)


def fit_tail(sample: Array) -> Tail:
    """Probability-weighted moments of the excesses above the quantile; `sample` is finite and large enough."""
    start, knots, excess = _excesses(sample)
    n = len(excess)
    if n < 2 or excess[-1] <= 0:
        # Everything is alike: whatever goes beyond by a hair of its size is strange.
        return Tail(knots, 0.0, max(abs(float(knots[-1])) * 1e-3, 1e-6), start)
    mean = float(excess.mean())
    weighted = float((excess * (n - 1 - np.arange(n))).mean() / (n - 1))
    shape = 2 - mean / (mean - 2 * weighted) if mean > 2 * weighted else HEAVIEST
    # A shape below zero would say that nothing can ever be stranger than some value.
    shape = float(min(max(shape, 0.0) + CAUTION * _ERROR / np.sqrt(n), HEAVIEST))
    return Tail(knots, float(np.float32(shape)), float(np.float32(max(mean * (1 - shape), 1e-9))), start)


def fit_surprise(sample: Array) -> Tail:
    """The tail of what is a p-value already, the highest of several: exponential, never lighter than that of one."""
    start, knots, excess = _excesses(sample)
    scale = max(float(excess.mean()) if len(excess) else 0.0, 1 / np.log(10))
    return Tail(knots, 0.0, float(np.float32(scale)), start)


def _excesses(sample: Array) -> tuple[float, NDArray[np.float32], NDArray[np.float64]]:
    """Where the tail starts, the quantiles below, and what is above, in order."""
    if len(sample) < ENOUGH:
        raise SettingsError(f"{len(sample)} normal windows are too few to calibrate on; {ENOUGH} are needed")
    start = float(np.float32(np.clip(1 - EXCESSES / len(sample), LOWEST, FROM)))
    knots = np.quantile(sample, np.linspace(0, start, KNOTS)).astype(np.float32)
    return start, knots, np.sort(np.asarray(sample, np.float64)[sample > knots[-1]] - float(knots[-1]))
