"""Do embeddings tell jobs apart? Fitted models and campaigns -> silhouettes, probes, and the way to bad I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.page import COLOURS, figure, svg
from clustertwin.telemetry.models.contract import Autoencoder
from clustertwin.telemetry.studies.reference.directions import job_directions
from clustertwin.telemetry.studies.reference.embedding_quality import (
    BAD,
    EACH,
    Pca,
    Separation,
    Space,
    drawn_rows,
    embed,
    labels,
    means,
    separation,
    silhouette,
    statistics,
)
from clustertwin.telemetry.studies.reference.section import Picture, Section, Table
from clustertwin.telemetry.studies.reference.study_data import Data

Embed = Callable[[Windows], Space]
MEANS = "channel means, no model"


@dataclass(frozen=True, slots=True)
class Drift:
    """How near windows come to the centre of bad I/O as their iowait rises."""

    distance: NDArray[np.float64]  # (n,) in units of the normal windows' median distance
    iowait: NDArray[np.float64]  # (n,) the window's maximum
    correlation: float  # rank correlation of the two


def spaces(models: Mapping[str, Autoencoder], train: Windows) -> dict[str, Embed]:
    """Every space to compare, the one without a model first."""

    def by(model: Autoencoder) -> Embed:
        return lambda windows: embed(model, windows)[0]

    pca = Pca(train, 16)
    trivial: dict[str, Embed] = {
        MEANS: means,
        "means, deviations, steps, no model": statistics,
        "PCA-16": lambda windows: pca.embed(windows)[0],
    }
    return trivial | {name: by(model) for name, model in models.items()}


def separability(data: Data, models: Mapping[str, Autoencoder], seed: int = 0, umap: bool = False) -> Section:
    """The section: one row for each space, a scatter of each model, distance to bad I/O against iowait."""
    rng = np.random.default_rng(seed)
    parts = data.normal("train"), data.windows("validation"), data.windows("test")
    train, other, test = parts
    # Every window is embedded, in the company it has; as many of each kind are looked at.
    of_train, of_other, of_test = (drawn_rows(part, rng) for part in parts)
    # Bad I/O is seen in the test campaigns only: the classifiers learn the normal kinds.
    label, other_label = labels(test)[of_test], labels(other)[of_other]
    found: dict[str, Separation] = {}
    pictures: list[Picture] = []
    drifts: dict[str, Drift] = {}
    by_jobs: dict[str, tuple[float, int]] = {}
    for name, space in spaces(models, train).items():
        z, z_other = space(test)[of_test], space(other)
        found[name] = separation(z, label, z_other[of_other], other_label)
        directions = job_directions(z_other, other)
        by_jobs[name] = silhouette(z @ directions, label), directions.shape[1]
        if (label == BAD).any():
            drifts[name] = drift(z, test.take(of_test), label)
        if name in models:
            pictures.append(_scatter(name, space(train)[of_train], z, label, umap))
    rows = tuple(
        (
            name,
            f"{one.silhouette:.3f}",
            "{:.3f} ({})".format(*by_jobs[name]),
            f"{one.probe:.3f}",
            f"{one.neighbours:.3f}",
            f"{drifts[name].correlation:+.2f}" if name in drifts else "",
        )
        for name, one in found.items()
    )
    best = max(models, key=lambda name: by_jobs[name][0]) if models else ""
    text = f"{len(of_test)} test windows of {', '.join(sorted(set(label.tolist())))}, at most {EACH} of each. " + (
        f"The best silhouette is {by_jobs[best][0]:.3f}: {best}, in the {by_jobs[best][1]} directions that tell jobs "
        f"apart; channel means alone, without any model, reach {found[MEANS].silhouette:.3f}."
        if best
        else ""
    )
    table = Table(
        "Kinds of jobs in each space",
        ("space", "silhouette", "by jobs (numbers)", "linear probe", "5 nearest", "distance to bad I/O ~ iowait"),
        rows,
        "By jobs: silhouette in the directions in which jobs differ five times more than their own windows do, on "
        "validation campaigns; nobody names a kind. Probe and neighbours: accuracy on test campaigns after learning on "
        "validation campaigns. Last column: rank correlation of a window's distance to the centre of bad I/O with its "
        "maximum iowait.",
        yardsticks=3,
    )
    if best and best in drifts:
        pictures.append(_drift_picture(best, drifts[best], label))
    return Section("separability", "Do embeddings tell jobs apart?", text, (table,), tuple(pictures))


def drift(z: Space, windows: Windows, label: NDArray[np.str_]) -> Drift:
    """Distance of every window to the centre of the bad-I/O windows."""
    distance = np.linalg.norm(z - z[label == BAD].mean(axis=0), axis=1)
    distance = distance / max(float(np.median(distance[label != BAD])), 1e-12)
    iowait = windows.values[..., windows.schema.index("iowait")].max(axis=1).astype(np.float64)
    rank = require("scipy.stats", "models").spearmanr(distance, iowait).statistic
    return Drift(distance, iowait, float(rank))


def _scatter(name: str, train: Space, z: Space, label: NDArray[np.str_], umap: bool) -> Picture:
    """Fitted on the embeddings of training windows, drawn for those of the test."""
    if umap:
        fitted = require("umap", "umap").UMAP(random_state=0).fit(train)
    else:
        fitted = require("sklearn.decomposition", "models").PCA(2).fit(train)
    flat = fitted.transform(z)
    made, axes = figure(6, 4.2, 1, 1)
    for i, kind in enumerate(sorted(set(label.tolist()))):
        mine = flat[label == kind]
        axes[0, 0].scatter(mine[:, 0], mine[:, 1], s=7, alpha=0.6, color=COLOURS[i % len(COLOURS)], label=kind)
    axes[0, 0].set(xlabel="UMAP 1" if umap else "first component", ylabel="UMAP 2" if umap else "second")
    axes[0, 0].legend(frameon=False, labelcolor="linecolor")
    return Picture(f"{name}: embeddings of test windows", svg(made, f"scatter-{name}"))


def _drift_picture(name: str, one: Drift, label: NDArray[np.str_]) -> Picture:
    made, axes = figure(6, 3.6, 1, 1)
    for i, kind in enumerate(sorted(set(label.tolist()))):
        mine = label == kind
        axes[0, 0].scatter(
            one.iowait[mine], one.distance[mine], s=7, alpha=0.6, color=COLOURS[i % len(COLOURS)], label=kind
        )
    axes[0, 0].set(xlabel="maximum iowait in the window", ylabel="distance to the centre of bad I/O")
    axes[0, 0].legend(frameon=False, labelcolor="linecolor")
    return Picture(f"{name}: a job that drifts towards bad I/O comes nearer", svg(made, "drift"))
