"""Baseline detectors for comparison: name -> fit(normal moments, seed) -> scorer.

Each is fitted on the same normal moments and scores the same windows as our detector. As in common practice, they see
the window of one thread, or its statistics, and no jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.telemetry.detection.features.inference import infer
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment
from clustertwin.telemetry.studies.window_metrics import Array, Scorer

Fit = Callable[[Sequence[Moment], int], Scorer]
SAMPLE = 8_000  # windows for fitting

_LAGS = 6  # seconds in a point of k-means
_NORMAL_QUANTILE = 0.99  # of the distances to the nearest centre


def model_error(stored: StoredModel) -> Scorer:
    """The reconstruction error of any of our models, alone."""
    return lambda moment: infer(stored, moment)[1]


def pca_error(train: Sequence[Moment], seed: int) -> Scorer:
    """The reconstruction error of sixteen principal components."""
    x = _flat(_sample(_windows, train, seed))
    mean = x.mean(0)
    axes = np.linalg.svd(x - mean, full_matrices=False)[2][:16]

    def score(moment: Moment) -> Array:
        residual = _flat(_windows(moment)) - mean
        residual -= residual @ axes.T @ axes
        return np.asarray((residual**2).mean(1))

    return score


def isolation_forest(train: Sequence[Moment], seed: int) -> Scorer:
    """An isolation forest on the statistics of a window."""
    forest: Any = require("sklearn.ensemble", "models").IsolationForest(random_state=seed)
    forest.fit(_sample(_statistics, train, seed))
    return lambda moment: np.asarray(-forest.score_samples(_statistics(moment)))


def pyod_on_windows(train: Sequence[Moment], seed: int) -> Scorer:
    """PyOD's autoencoder on the values of a window."""
    return _pyod(lambda moment: _flat(_windows(moment)), train, seed)


def pyod_on_statistics(train: Sequence[Moment], seed: int) -> Scorer:
    """PyOD's autoencoder on the statistics of a window."""
    return _pyod(_statistics, train, seed)


def nearest_neighbours(train: Sequence[Moment], seed: int) -> Scorer:
    """Distance to the fifth nearest normal window, by means and standard deviations."""
    x = _sample(_means_and_deviations, train, seed)
    mean, scale = x.mean(0), x.std(0) + 1e-3
    near: Any = require("sklearn.neighbors", "models").NearestNeighbors(n_neighbors=5).fit((x - mean) / scale)
    return lambda moment: np.asarray(near.kneighbors((_means_and_deviations(moment) - mean) / scale)[0][:, -1])


def k_means_per_metric(train: Sequence[Moment], seed: int) -> Scorer:
    """k-means as in Netdata: two centres per metric; the score is the fraction of a window's points far from both."""
    windows = _sample(_windows, train, seed)
    models = []
    for c in range(windows.shape[2]):
        points = _lagged(windows[:1000, :, c]).reshape(-1, _LAGS)
        centres = (
            require("sklearn.cluster", "models").KMeans(2, n_init=1, random_state=seed).fit(points).cluster_centers_
        )
        models.append((centres, np.quantile(_nearest(points, centres), _NORMAL_QUANTILE)))

    def score(moment: Moment) -> Array:
        windows = _windows(moment)
        far = [_nearest(_lagged(windows[:, :, c]), centres) > limit for c, (centres, limit) in enumerate(models)]
        return np.asarray(np.mean([metric.mean(1) for metric in far], axis=0))

    return score


#: name -> function that fits it
RIVALS: dict[str, Fit] = {
    "PCA-16, error": pca_error,
    "PyOD autoencoder": pyod_on_windows,
    "PyOD autoencoder, statistics": pyod_on_statistics,
    "isolation forest, statistics": isolation_forest,
    "5 nearest neighbours": nearest_neighbours,
    "k-means per metric": k_means_per_metric,
}


def _pyod(features: Callable[[Moment], NDArray[np.float32]], train: Sequence[Moment], seed: int) -> Scorer:
    model: Any = require("pyod.models.auto_encoder", "study").AutoEncoder(random_state=seed, verbose=0, device="cpu")
    model.fit(_sample(features, train, seed))
    return lambda moment: np.asarray(model.decision_function(features(moment)))


def _sample(
    features: Callable[[Moment], NDArray[np.float32]], train: Sequence[Moment], seed: int
) -> NDArray[np.float32]:
    """Features of at most `SAMPLE` settled, valid windows of these moments."""
    rows = np.concatenate([features(m)[m.settled & m.windows()[1].all(1)] for m in train])
    chosen = np.random.default_rng(seed).permutation(len(rows))[:SAMPLE]
    return np.asarray(rows[chosen])


def _windows(moment: Moment) -> NDArray[np.float32]:
    return moment.windows(WINDOW_S)[0][:, :, list(Shape(moment.schema).inputs)]


def _flat(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    return windows.reshape(len(windows), -1)


def _means_and_deviations(moment: Moment) -> NDArray[np.float32]:
    x = _windows(moment)
    return np.concatenate([x.mean(1), x.std(1)], axis=1)


def _statistics(moment: Moment) -> NDArray[np.float32]:
    """Means, standard deviations, mean absolute steps and quantiles of the window."""
    x = _windows(moment)
    quantiles = np.quantile(x, (0.05, 0.5, 0.95), axis=1).transpose(1, 0, 2).reshape(len(x), -1)
    parts = (_means_and_deviations(moment), np.abs(np.diff(x, axis=1)).mean(1), quantiles)
    return np.concatenate(parts, axis=1).astype(np.float32)


def _lagged(series: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, second) -> (n, second, lag): every second with those before it."""
    return np.lib.stride_tricks.sliding_window_view(series, _LAGS, axis=1)


def _nearest(points: NDArray[np.float32], centres: NDArray[np.float32]) -> Array:
    """Distance to the nearest centre."""
    return np.asarray(np.min([np.sqrt(((points - centre) ** 2).sum(-1)) for centre in centres], axis=0))
