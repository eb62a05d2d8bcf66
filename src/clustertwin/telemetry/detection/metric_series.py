"""Detection without threads and jobs: a normal series of any bounded metrics -> one calibrated score for each sample.

A sample is described by the means and deviations of all metrics over the samples up to it, at several lengths. How far
it lies from its nearest neighbours in the normal series, relative to how far normal samples lie from theirs, is how
strange it looks at that length; the mean over the lengths is its strangeness. A spike is strange at short lengths, a
drift at long ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.telemetry.detection.views.p_value import ENOUGH, Tail, fit_tail

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeriesSettings:
    lengths: tuple[int, ...] = (5, 20, 80)  # samples; each four times the last
    neighbour: int = 5  # whose distance counts
    every: int = 4  # of the normal samples is kept: those beside each other say the same
    check: float = 0.3  # of the normal series, its end, says how far normal samples lie


@dataclass(frozen=True, slots=True)
class _Scale:
    """The normal series at one length."""

    length: int
    mean: Array  # (feature,)
    spread: Array  # (feature,)
    near: Any  # of the normal samples, whitened
    usual: float  # distance of a normal sample that was not among them


@dataclass(frozen=True, slots=True)
class SeriesDetector:
    """`score` is -log10 of how often a normal sample is as strange."""

    settings: SeriesSettings
    scales: tuple[_Scale, ...]
    tail: Tail

    def score(self, series: Array, before: Array | None = None) -> Array:
        """(sample, metric) -> (sample,); `before` are the samples just before. An unknown sample has no score."""
        surprise: Array = self.tail.surprise(_strangeness(self.scales, self.settings, series, before))
        surprise[~np.isfinite(series).all(1)] = np.nan
        return surprise


def fit_series(normal: Array, settings: SeriesSettings = SeriesSettings()) -> SeriesDetector:
    """Learn from a normal series (sample, metric). A few strange samples in it do little harm."""
    normal = np.asarray(normal, np.float64)
    cut = int(len(normal) * (1 - settings.check))
    if len(normal) - cut < ENOUGH or cut < settings.lengths[-1] + settings.neighbour * settings.every:
        raise SettingsError(f"{len(normal)} samples are too few to learn lengths of {settings.lengths[-1]} from")
    # Twice: once with the end held out, to see how far normal samples lie; then with all, to score.
    held_out = tuple(_scale(normal[:cut], length, settings) for length in settings.lengths)
    distances = [_distance(scale, settings, normal[cut:], normal[:cut]) for scale in held_out]
    usual = [max(float(np.median(distance)), 1e-6) for distance in distances]
    strange = np.mean([distance / u for distance, u in zip(distances, usual, strict=True)], axis=0)
    scales = tuple(_scale(normal, length, settings, u) for length, u in zip(settings.lengths, usual, strict=True))
    return SeriesDetector(settings, scales, fit_tail(strange))


def _strangeness(
    scales: tuple[_Scale, ...], settings: SeriesSettings, series: Array, before: Array | None
) -> NDArray[np.float64]:
    return np.mean([_distance(scale, settings, series, before) / scale.usual for scale in scales], axis=0)


def _scale(normal: Array, length: int, settings: SeriesSettings, usual: float = 1.0) -> _Scale:
    features = _features(normal, length)[length:]
    mean, spread = features.mean(0), features.std(0) + 1e-3
    near = require("sklearn.neighbors", "models").NearestNeighbors(n_neighbors=settings.neighbour)
    return _Scale(length, mean, spread, near.fit(((features - mean) / spread)[:: settings.every]), usual)


def _distance(scale: _Scale, settings: SeriesSettings, series: Array, before: Array | None) -> Array:
    """(sample,) to the neighbour that counts."""
    history = series[:0] if before is None else before[-scale.length :]
    features = _features(np.concatenate([history, series]), scale.length)[len(history) :]
    return np.asarray(scale.near.kneighbors((features - scale.mean) / scale.spread)[0][:, -1])


def _features(series: Array, length: int) -> Array:
    """(sample, metric) -> (sample, 2 metric) means and deviations over the last `length` samples, or what there is."""
    known = np.isfinite(series)
    x = np.where(known, series, 0.0)
    count, total, square = (_running(part, length) for part in (known.astype(np.float64), x, x**2))
    mean = total / np.maximum(count, 1)
    return np.concatenate([mean, np.sqrt(np.maximum(square / np.maximum(count, 1) - mean**2, 0))], axis=1)


def _running(x: Array, length: int) -> Array:
    """Sums over the last `length` rows."""
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
    end = np.arange(1, len(x) + 1)
    return np.asarray(total[end] - total[np.maximum(end - length, 0)])
