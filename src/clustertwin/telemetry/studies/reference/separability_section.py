"""Separability of job types: trained models, campaigns -> silhouettes, linear probes, distance to bad I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.page import figure, svg
from clustertwin.telemetry.models.contract import Autoencoder
from clustertwin.telemetry.studies.reference.embedding_quality import (
    BAD_IO,
    WINDOWS_PER_KIND,
    Embedding,
    Pca,
    Separation,
    balanced_sample,
    channel_means,
    channel_statistics,
    embed,
    kind_labels,
    separation,
    silhouette,
)
from clustertwin.telemetry.studies.reference.fisher_discriminant import discriminant_directions
from clustertwin.telemetry.studies.reference.section import Picture, Section, Table, number, scatter_by_kind
from clustertwin.telemetry.studies.reference.study_data import StudyData

Embed = Callable[[Windows], Embedding]
MEANS = "channel means, no model"


@dataclass(frozen=True, slots=True)
class Drift:
    """The distance of windows to the centre of bad I/O, and its correlation with iowait."""

    distance: NDArray[np.float64]  # (n,) in units of the median distance of normal windows
    iowait: NDArray[np.float64]  # (n,) maximum in the window
    correlation: float  # Spearman's rank correlation of the two
    within_kinds: float  # mean of the correlations within each kind in which both vary


@dataclass(frozen=True, slots=True)
class Space:
    """How well kinds of jobs are apart in one embedding."""

    separation: Separation
    sizes_apart: float  # silhouette, with each size of an MPI program as a kind of its own
    by_jobs: float  # silhouette in the discriminant directions of jobs, …
    directions: int  # … and their number
    drift: Drift | None  # None without bad I/O

    def row(self, name: str) -> tuple[str, ...]:
        """The row of the table."""
        return (
            name,
            number(self.separation.silhouette, 3),
            number(self.sizes_apart, 3),
            f"{self.by_jobs:.3f} ({self.directions})",
            number(self.separation.linear_probe, 3),
            number(self.separation.nearest_neighbours, 3),
            f"{self.drift.correlation:+.2f}" if self.drift else "",
            f"{self.drift.within_kinds:+.2f}" if self.drift else "",
        )


def embeddings(models: Mapping[str, Autoencoder], train: Windows) -> dict[str, Embed]:
    """The embeddings to compare, those without a model first."""

    def of_model(model: Autoencoder) -> Embed:
        return lambda windows: embed(model, windows)[0]

    pca = Pca(train, 16)
    baselines: dict[str, Embed] = {
        MEANS: channel_means,
        "means, deviations, steps, no model": channel_statistics,
        "PCA-16": lambda windows: pca.embed(windows)[0],
    }
    return baselines | {name: of_model(model) for name, model in models.items()}


def separability_section(
    data: StudyData, models: Mapping[str, Autoencoder], seed: int = 0, umap: bool = False
) -> Section:
    """The section: one row per embedding, a scatter plot of each model, distance to bad I/O against iowait."""
    rng = np.random.default_rng(seed)
    splits = data.normal("train"), data.windows("validation"), data.windows("test")
    train, validation, test = splits
    # All windows are embedded, so that graphs are complete; a balanced sample is evaluated.
    train_rows, validation_rows, test_rows = (balanced_sample(split, rng) for split in splits)
    # Only test campaigns have bad I/O: the classifiers learn the normal kinds.
    label, validation_label = kind_labels(test)[test_rows], kind_labels(validation)[validation_rows]
    if len(set(label.tolist())) < 2:
        raise SettingsError(f"the test campaigns have one kind of job only, {label[0]}")
    # Every size of an MPI program as a class of its own; bad I/O stays one class.
    sizes = np.where(label == BAD_IO, BAD_IO, test.job_type[test_rows])
    spaces: dict[str, Space] = {}
    pictures: list[Picture] = []
    for name, embedding in embeddings(models, train).items():
        z, z_validation = embedding(test)[test_rows], embedding(validation)
        directions = discriminant_directions(z_validation, validation)
        spaces[name] = Space(
            separation(z, label, z_validation[validation_rows], validation_label),
            sizes_apart=silhouette(z, sizes),
            by_jobs=silhouette(z @ directions, label),
            directions=directions.shape[1],
            drift=drift(z, test.take(test_rows), label) if (label == BAD_IO).any() else None,
        )
        if name in models:
            pictures.append(_scatter(name, embedding(train)[train_rows], z, label, umap))
    best = max(models, key=lambda name: spaces[name].by_jobs) if models else ""
    kinds = ", ".join(sorted(set(label.tolist())))
    text = f"{len(test_rows)} test windows of {kinds}, at most {WINDOWS_PER_KIND} of each."
    if best:
        space = spaces[best]
        text += (
            f" {best} has the best silhouette, {space.by_jobs:.3f}, in its {space.directions} discriminant "
            f"directions of jobs; the channel means without a model reach {spaces[MEANS].separation.silhouette:.3f}."
        )
        if space.drift is not None:
            pictures.append(_drift_picture(best, space.drift, label))
    return Section("separability", "Separability of job types", text, (_table(spaces),), tuple(pictures))


def _table(spaces: Mapping[str, Space]) -> Table:
    """One row per embedding, those without a model first."""
    return Table(
        "Kinds of jobs in each space",
        (
            *("space", "silhouette", "sizes apart", "by jobs (numbers)", "linear probe", "5 nearest"),
            *("distance to bad I/O ~ iowait", "within a kind"),
        ),
        tuple(space.row(name) for name, space in spaces.items()),
        "Sizes apart: silhouette with each size of an MPI program as a kind of its own. By jobs: silhouette in the "
        "directions in which the variance between jobs is at least five times the variance within jobs, fitted on "
        "validation campaigns without labels. Linear probe and 5 nearest: accuracy on test campaigns after training "
        "on validation campaigns. Last columns: rank correlation of a window's distance to the centre of bad I/O with "
        "its maximum iowait, over all windows and as the mean of the kinds.",
        baselines=3,
    )


def drift(z: Embedding, windows: Windows, label: NDArray[np.str_]) -> Drift:
    """Distance of every window to the centre of the bad-I/O windows."""
    distance = np.linalg.norm(z - z[label == BAD_IO].mean(axis=0), axis=1)
    distance = distance / max(float(np.median(distance[label != BAD_IO])), 1e-12)
    iowait = windows.values[..., windows.schema.index("iowait")].max(axis=1).astype(np.float64)
    within = [_rank_correlation(distance[rows], iowait[rows]) for rows in (label == kind for kind in set(label))]
    known = [each for each in within if np.isfinite(each)]
    mean = float(np.mean(known)) if known else float("nan")
    return Drift(distance, iowait, _rank_correlation(distance, iowait), mean)


def _rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Spearman's correlation; NaN for fewer than ten windows, or if one side is constant."""
    if len(a) < 10 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(require("scipy.stats", "models").spearmanr(a, b).statistic)


def _scatter(name: str, train: Embedding, z: Embedding, label: NDArray[np.str_], umap: bool) -> Picture:
    """A projection fitted on embeddings of training windows, applied to those of test windows."""
    if umap:
        projection = require("umap", "umap").UMAP(random_state=0).fit(train)
    else:
        projection = require("sklearn.decomposition", "models").PCA(2).fit(train)
    projected = projection.transform(z)
    drawing, axes = figure(6, 4.2, 1, 1)
    scatter_by_kind(axes[0, 0], projected[:, 0], projected[:, 1], label)
    axes[0, 0].set(xlabel="UMAP 1" if umap else "first component", ylabel="UMAP 2" if umap else "second component")
    return Picture(f"{name}: embeddings of test windows", svg(drawing, f"scatter-{name}"))


def _drift_picture(name: str, drift: Drift, label: NDArray[np.str_]) -> Picture:
    drawing, axes = figure(6, 3.6, 1, 1)
    scatter_by_kind(axes[0, 0], drift.iowait, drift.distance, label)
    axes[0, 0].set(xlabel="maximum iowait in the window", ylabel="distance to the centre of bad I/O")
    return Picture(f"{name}: distance to the centre of bad I/O against iowait", svg(drawing, "drift"))
