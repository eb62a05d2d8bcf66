"""What an embedding is judged by: embeddings and the kinds of their windows -> silhouette, probe, neighbours.

A space is compared on the same drawn windows, as many of each kind, so that no kind counts more than another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.telemetry.models.batches import group_windows
from clustertwin.telemetry.models.contract import Autoencoder
from clustertwin.telemetry.models.training import infer
from clustertwin.telemetry.studies.reference.study_data import kinds

EACH = 300  # windows of a kind
BAD = "bad-io"

Space = NDArray[np.float32]  # (n, coordinate)


@dataclass(frozen=True, slots=True)
class Separation:
    """How well kinds of jobs come apart in a space."""

    silhouette: float
    probe: float  # accuracy of a linear classifier on windows of other campaigns
    neighbours: float  # … of the five nearest


def drawn_rows(windows: Windows, rng: np.random.Generator, each: int = EACH) -> NDArray[np.intp]:
    """As many windows of every kind, normal ones and those of bad I/O: where they are, in order."""
    label = labels(windows)
    rows = [rng.permutation(np.flatnonzero(label == kind))[:each] for kind in sorted(set(label.tolist()) - {""})]
    return np.sort(np.concatenate(rows))


def labels(windows: Windows) -> NDArray[np.str_]:
    """The kind of each window; bad I/O is a kind of its own, other anomalies are none (empty)."""
    kind = np.where(windows.anomaly == "", kinds(windows), "")
    return np.where(windows.anomaly == BAD, BAD, kind)


def means(windows: Windows) -> Space:
    """The four channel means: what a space without any model is."""
    return windows.values.mean(axis=1)


def statistics(windows: Windows) -> Space:
    """Mean, deviation and mean absolute step of each channel: level and restlessness, without any model."""
    x = windows.values
    return np.concatenate([x.mean(axis=1), x.std(axis=1), np.abs(np.diff(x, axis=1)).mean(axis=1)], axis=1)


def embed(model: Autoencoder, windows: Windows) -> tuple[Space, NDArray[np.float32]]:
    """Embedding and error of each window."""
    torch.set_num_threads(1)
    z, error = infer(model, group_windows(windows, model.graph, model.config.shape))
    return z.numpy(), error.numpy()


class Pca:
    """Principal components of training windows as a model of its own: the linear yardstick at equal latent size."""

    def __init__(self, train: Windows, latent: int) -> None:
        x = train.values[..., :-1].reshape(len(train), -1)
        latent = min(latent, *x.shape)
        self._pca = require("sklearn.decomposition", "models").PCA(latent, svd_solver="covariance_eigh").fit(x)

    def embed(self, windows: Windows) -> tuple[Space, NDArray[np.float32]]:
        x = windows.values[..., :-1].reshape(len(windows), -1)
        z = self._pca.transform(x)
        made = self._pca.inverse_transform(z).reshape(*windows.values.shape[:2], -1)
        # The last channel is what the others leave of one.
        whole = np.concatenate([made, 1 - made.sum(axis=2, keepdims=True)], axis=2)
        return z.astype(np.float32), np.square(whole - windows.values).mean(axis=(1, 2)).astype(np.float32)


class KindPca:
    """Principal components of each kind on its own: a linear code of as many numbers that is told the kind of job."""

    def __init__(self, train: Windows, latent: int) -> None:
        kind = kinds(train)
        self._of = {name: Pca(train.take(kind == name), latent) for name in sorted(set(kind.tolist()))}

    def error(self, windows: Windows) -> NDArray[np.float32]:
        """Of each normal window by its own kind; NaN where that kind was never seen, or something is wrong."""
        kind, out = labels(windows), np.full(len(windows), np.nan, np.float32)
        for name, pca in self._of.items():
            if (mine := kind == name).any():
                out[mine] = pca.embed(windows.take(mine))[1]
        return out


def silhouette(z: NDArray[np.floating], label: NDArray[np.str_]) -> float:
    """Mean over windows of how much nearer a window is to its own kind than to the nearest other; NaN for one kind."""
    if not 1 < len(set(label.tolist())) < len(label):
        return float("nan")
    return float(require("sklearn.metrics", "models").silhouette_score(z, label))


def separation(z: Space, label: NDArray[np.str_], other: Space, other_label: NDArray[np.str_]) -> Separation:
    """Silhouette of `z`; classifiers learn on `other`, windows of campaigns that `z` has no second of."""
    pipeline = require("sklearn.pipeline", "models")
    scaler = require("sklearn.preprocessing", "models").StandardScaler
    logistic = require("sklearn.linear_model", "models").LogisticRegression(max_iter=1000)
    nearest = require("sklearn.neighbors", "models").KNeighborsClassifier(5)
    both = np.isin(label, other_label)  # a kind that was never seen cannot be named
    accuracy = [
        float(pipeline.make_pipeline(scaler(), judge).fit(other, other_label).score(z[both], label[both]))
        for judge in (logistic, nearest)
    ]
    return Separation(silhouette(z, label), *accuracy)
