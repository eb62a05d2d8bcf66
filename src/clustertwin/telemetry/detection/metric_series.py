"""Detection without threads and jobs: a normal series of bounded metrics -> one calibrated score per sample.

A sample is described by the means and standard deviations of all metrics over the samples up to it, at several lengths.
At each length, its distance to its nearest neighbours in the normal series is divided by the typical distance of normal
samples. The mean of these ratios over the lengths is calibrated to a p-value. Short lengths detect spikes, long lengths
detect drifts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.telemetry.detection.views.p_value import MIN_SAMPLE, SurvivalFunction, fit_pareto_tail

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeriesSettings:
    lengths: tuple[int, ...] = (5, 20, 80)  # samples
    neighbour: int = 5  # the distance to this neighbour counts
    every: int = 4  # keep one normal sample in this many; adjacent samples are nearly the same
    check: float = 0.3  # share of the normal series, its end, from which the typical distance is taken


@dataclass(frozen=True, slots=True)
class _NeighbourIndex:
    """The normal series at one length."""

    length: int
    mean: Array  # (feature,)
    spread: Array  # (feature,)
    neighbours: Any  # scikit-learn's index of the scaled normal samples
    typical: float  # distance of a normal sample that is not in the index

    def distance(self, series: Array, before: Array | None) -> Array:
        """(sample,) to the neighbour that counts; `before` are the samples that precede the series."""
        history = series[:0] if before is None else before[-self.length :]
        features = _features(np.concatenate([history, series]), self.length)[len(history) :]
        return np.asarray(self.neighbours.kneighbors((features - self.mean) / self.spread)[0][:, -1])


@dataclass(frozen=True, slots=True)
class SeriesDetector:
    """`score` is -log10 of the share of normal samples that look at least this unusual."""

    settings: SeriesSettings
    indices: tuple[_NeighbourIndex, ...]
    survival: SurvivalFunction

    def score(self, series: Array, before: Array | None = None) -> Array:
        """(sample, metric) -> (sample,); `before` are the samples that precede them. NaN for a sample with NaN."""
        relative = np.mean([index.distance(series, before) / index.typical for index in self.indices], axis=0)
        surprise: Array = self.survival.surprise(relative)
        surprise[~np.isfinite(series).all(1)] = np.nan
        return surprise


def fit_series(normal: Array, settings: SeriesSettings = SeriesSettings()) -> SeriesDetector:
    """Fit to a normal series (sample, metric). A few anomalous samples in it do little harm."""
    normal = np.asarray(normal, np.float64)
    cut = int(len(normal) * (1 - settings.check))
    if len(normal) - cut < MIN_SAMPLE or cut < settings.lengths[-1] + settings.neighbour * settings.every:
        raise SettingsError(f"{len(normal)} samples are too few for a length of {settings.lengths[-1]} samples")
    # Fit twice: without the end of the series for the typical distances, then with all of it for scoring.
    held_out = [_index(normal[:cut], length, settings) for length in settings.lengths]
    distances = [index.distance(normal[cut:], normal[:cut]) for index in held_out]
    typical = [max(float(np.median(distance)), 1e-6) for distance in distances]
    relative = np.mean([distance / t for distance, t in zip(distances, typical, strict=True)], axis=0)
    indices = tuple(_index(normal, length, settings, t) for length, t in zip(settings.lengths, typical, strict=True))
    return SeriesDetector(settings, indices, fit_pareto_tail(relative))


def _index(normal: Array, length: int, settings: SeriesSettings, typical: float = 1.0) -> _NeighbourIndex:
    features = _features(normal, length)[length:]
    mean, spread = features.mean(0), features.std(0) + 1e-3
    neighbours = require("sklearn.neighbors", "models").NearestNeighbors(n_neighbors=settings.neighbour)
    scaled = ((features - mean) / spread)[:: settings.every]
    return _NeighbourIndex(length, mean, spread, neighbours.fit(scaled), typical)


def _features(series: Array, length: int) -> Array:
    """(sample, metric) -> (sample, 2 metric) mean and deviation over at most the last `length` samples."""
    known = np.isfinite(series)
    x = np.where(known, series, 0.0)
    count, total, square = (_running_sum(part, length) for part in (known.astype(np.float64), x, x**2))
    mean = total / np.maximum(count, 1)
    return np.concatenate([mean, np.sqrt(np.maximum(square / np.maximum(count, 1) - mean**2, 0))], axis=1)


def _running_sum(x: Array, length: int) -> Array:
    """Sums over the last `length` rows."""
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
    end = np.arange(1, len(x) + 1)
    return np.asarray(total[end] - total[np.maximum(end - length, 0)])
