"""Evaluate embeddings: embeddings and the kinds of their windows -> silhouette, linear probe, nearest neighbours.

All embeddings are compared on the same sample with equally many windows of each kind, so that all kinds count equally.
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
from clustertwin.telemetry.studies.reference.study_data import job_kinds

WINDOWS_PER_KIND = 300
BAD_IO = "bad-io"

Embedding = NDArray[np.float32]  # (n, coordinate)


@dataclass(frozen=True, slots=True)
class Separation:
    """How well an embedding separates kinds of jobs."""

    silhouette: float
    linear_probe: float  # accuracy of logistic regression, trained on other campaigns
    nearest_neighbours: float  # accuracy of the five nearest neighbours, trained on other campaigns


def balanced_sample(windows: Windows, rng: np.random.Generator, count: int = WINDOWS_PER_KIND) -> NDArray[np.intp]:
    """Indices of at most `count` random windows of each normal kind and of bad I/O, in ascending order."""
    label = kind_labels(windows)
    rows = [rng.permutation(np.flatnonzero(label == kind))[:count] for kind in sorted(set(label.tolist()) - {""})]
    return np.sort(np.concatenate(rows))


def kind_labels(windows: Windows) -> NDArray[np.str_]:
    """The kind of each window. Bad I/O is a kind of its own; windows with any other anomaly have an empty label."""
    kind = np.where(windows.anomaly == "", job_kinds(windows), "")
    return np.where(windows.anomaly == BAD_IO, BAD_IO, kind)


def channel_means(windows: Windows) -> Embedding:
    """The four channel means, as an embedding without a model."""
    return windows.values.mean(axis=1)


def channel_statistics(windows: Windows) -> Embedding:
    """Mean, standard deviation and mean absolute step of each channel, as an embedding without a model."""
    x = windows.values
    return np.concatenate([x.mean(axis=1), x.std(axis=1), np.abs(np.diff(x, axis=1)).mean(axis=1)], axis=1)


def embed(model: Autoencoder, windows: Windows) -> tuple[Embedding, NDArray[np.float32]]:
    """Embedding and reconstruction error of each window."""
    torch.set_num_threads(1)
    z, error = infer(model, group_windows(windows, model.graph, model.config.shape))
    return z.numpy(), error.numpy()


@torch.no_grad()
def reconstruct(model: Autoencoder, windows: Windows, size: int = 4096) -> NDArray[np.float32]:
    """The reconstruction of each window: (n, length, channel)."""
    torch.set_num_threads(1)
    data = group_windows(windows, model.graph, model.config.shape)
    parts = [model(batch)[1] for batch in data.batches(size)]
    return torch.cat(parts)[torch.from_numpy(data.order).argsort()].numpy()


class Pca:
    """Principal components of training windows: the linear baseline with the same latent size."""

    def __init__(self, train: Windows, latent: int) -> None:
        x = train.values[..., :-1].reshape(len(train), -1)
        latent = min(latent, *x.shape)
        self._pca = require("sklearn.decomposition", "models").PCA(latent, svd_solver="covariance_eigh").fit(x)

    def embed(self, windows: Windows) -> tuple[Embedding, NDArray[np.float32]]:
        x = windows.values[..., :-1].reshape(len(windows), -1)
        z = self._pca.transform(x)
        free = self._pca.inverse_transform(z).reshape(*windows.values.shape[:2], -1)
        # The last channel is one minus the others.
        reconstruction = np.concatenate([free, 1 - free.sum(axis=2, keepdims=True)], axis=2)
        return z.astype(np.float32), np.square(reconstruction - windows.values).mean(axis=(1, 2)).astype(np.float32)


class PcaPerKind:
    """Separate principal components for each kind of job: a linear code that also knows the kind."""

    def __init__(self, train: Windows, latent: int) -> None:
        kind = job_kinds(train)
        self._pca = {name: Pca(train.take(kind == name), latent) for name in sorted(set(kind.tolist()))}

    def error(self, windows: Windows) -> NDArray[np.float32]:
        """Reconstruction error of each normal window; NaN for kinds without training windows and for anomalies."""
        kind, error = kind_labels(windows), np.full(len(windows), np.nan, np.float32)
        for name, pca in self._pca.items():
            if (rows := kind == name).any():
                error[rows] = pca.embed(windows.take(rows))[1]
        return error


def silhouette(z: NDArray[np.floating], label: NDArray[np.str_]) -> float:
    """The mean silhouette coefficient of the windows; NaN if there is only one label."""
    if not 1 < len(set(label.tolist())) < len(label):
        return float("nan")
    return float(require("sklearn.metrics", "models").silhouette_score(z, label))


def separation(z: Embedding, label: NDArray[np.str_], train_z: Embedding, train_label: NDArray[np.str_]) -> Separation:
    """Silhouette of `z`, and accuracy on it of classifiers trained on `train_z`, which comes from other campaigns.

    The accuracy is NaN if the training campaigns have one kind only, or no kind of the others.
    """
    pipeline = require("sklearn.pipeline", "models")
    scaler = require("sklearn.preprocessing", "models").StandardScaler
    logistic = require("sklearn.linear_model", "models").LogisticRegression(max_iter=1000)
    nearest = require("sklearn.neighbors", "models").KNeighborsClassifier(5)
    known = np.isin(label, train_label)  # a classifier cannot predict a kind that it was not trained on
    if len(set(train_label.tolist())) < 2 or not known.any():
        return Separation(silhouette(z, label), float("nan"), float("nan"))
    accuracy = [
        float(pipeline.make_pipeline(scaler(), classifier).fit(train_z, train_label).score(z[known], label[known]))
        for classifier in (logistic, nearest)
    ]
    return Separation(silhouette(z, label), *accuracy)
