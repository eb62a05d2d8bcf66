"""From a statistic to a p-value: a sample of the statistic on normal data -> -log10 of its survival function.

Below a high quantile the p-value comes from the sample itself. Above it a generalised Pareto tail continues beyond the
largest sample, so that extreme values still differ in score. The shape of the tail is never negative, because a
negative shape would set an upper limit. Events correspond to p-values near one in a million, and a night may provide
only a few hundred samples. A small sample therefore gives a larger share of itself to the tail, and the shape is raised
by half a standard error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError

Array = NDArray[np.floating]

TAIL_QUANTILE = 0.98  # the tail begins at this quantile, …
MIN_EXCESSES = 100  # … or at a lower one that leaves this many samples for the fit, …
LOWEST_QUANTILE = 0.9  # … but never below this one
KNOTS = 257  # quantiles stored for the part below the tail
MAX_SHAPE = 0.5  # a larger shape has infinite variance; fitted to a few dozen excesses it is noise
SHAPE_MARGIN = 0.5  # standard errors by which the shape is raised
_SHAPE_ERROR = 1.15  # √(4/3): the shape's standard error is this over √excesses, for shapes near 0
MIN_SAMPLE = 50  # a smaller sample is refused


@dataclass(frozen=True, slots=True)
class SurvivalFunction:
    """The distribution of one statistic on normal data: quantiles, then a generalised Pareto tail."""

    knots: NDArray[np.float32]  # (KNOTS,) evenly spaced quantiles, from the minimum to quantile `start`
    shape: float
    scale: float
    start: float = TAIL_QUANTILE

    def surprise(self, x: Array) -> NDArray[np.float64]:
        """-log10 of the share of normal data that is at least `x`. Increases with `x`; NaN stays NaN."""
        below = np.interp(x, self.knots, np.linspace(0, self.start, len(self.knots)))
        excess = np.maximum(np.asarray(x, np.float64) - float(self.knots[-1]), 0) / self.scale
        decay = np.log1p(self.shape * excess) / self.shape if self.shape > 1e-6 else excess
        return -np.log10(1 - below) + decay / np.log(10)

    def arrays(self, name: str) -> dict[str, NDArray[np.float32]]:
        """The arrays to store, with keys below `name`."""
        return {f"{name}/knots": self.knots, f"{name}/fit": np.array([self.shape, self.scale, self.start], np.float32)}

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[np.float32]], name: str) -> SurvivalFunction:
        # Older detectors store shape and scale only; their tails all start at TAIL_QUANTILE.
        return cls(arrays[f"{name}/knots"], *arrays[f"{name}/fit"].tolist())


def fit_pareto_tail(sample: Array) -> SurvivalFunction:
    """Fit by probability-weighted moments of the excesses above the quantile; `sample` must be finite."""
    start, knots, excess = _excesses(sample)
    n = len(excess)
    if n < 2 or excess[-1] <= 0:
        # All samples are equal: a value that is 0.1 % larger is already rare.
        return SurvivalFunction(knots, 0.0, max(abs(float(knots[-1])) * 1e-3, 1e-6), start)
    mean = float(excess.mean())
    weighted = float((excess * (n - 1 - np.arange(n))).mean() / (n - 1))
    shape = 2 - mean / (mean - 2 * weighted) if mean > 2 * weighted else MAX_SHAPE
    shape = float(min(max(shape, 0.0) + SHAPE_MARGIN * _SHAPE_ERROR / np.sqrt(n), MAX_SHAPE))
    return SurvivalFunction(knots, float(np.float32(shape)), float(np.float32(max(mean * (1 - shape), 1e-9))), start)


def fit_exponential_tail(sample: Array) -> SurvivalFunction:
    """Fit the maximum of several -log10 p-values: an exponential tail, at least as heavy as that of one p-value."""
    start, knots, excess = _excesses(sample)
    scale = max(float(excess.mean()) if len(excess) else 0.0, 1 / np.log(10))
    return SurvivalFunction(knots, 0.0, float(np.float32(scale)), start)


def _excesses(sample: Array) -> tuple[float, NDArray[np.float32], NDArray[np.float64]]:
    """The quantile at which the tail starts, the quantiles below it, and the sorted excesses above it."""
    if len(sample) < MIN_SAMPLE:
        raise SettingsError(f"{len(sample)} normal windows are too few to calibrate on; {MIN_SAMPLE} are needed")
    start = float(np.float32(np.clip(1 - MIN_EXCESSES / len(sample), LOWEST_QUANTILE, TAIL_QUANTILE)))
    knots = np.quantile(sample, np.linspace(0, start, KNOTS)).astype(np.float32)
    return start, knots, np.sort(np.asarray(sample, np.float64)[sample > knots[-1]] - float(knots[-1]))
