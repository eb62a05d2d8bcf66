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
from clustertwin.telemetry.study.data import Data
from clustertwin.telemetry.study.embedding import BAD, Pca, Separation, Space, drawn, embed, labels, means, separation
from clustertwin.telemetry.study.section import Picture, Section, Table

Embed = Callable[[Windows], Space]


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
    trivial: dict[str, Embed] = {"channel means, no model": means, "PCA-16": lambda windows: pca.embed(windows)[0]}
    return trivial | {name: by(model) for name, model in models.items()}


def separability(data: Data, models: Mapping[str, Autoencoder], seed: int = 0, umap: bool = False) -> Section:
    """The section: one row for each space, a scatter of each model, distance to bad I/O against iowait."""
    rng = np.random.default_rng(seed)
    train, test = data.normal("train"), drawn(data.windows("test"), rng)
    other = drawn(data.windows("validation"), rng)
    # Bad I/O is seen in the test campaigns only: the classifiers learn the normal kinds.
    label, other_label = labels(test), labels(other)
    found: dict[str, Separation] = {}
    pictures: list[Picture] = []
    drifts: dict[str, Drift] = {}
    for name, space in spaces(models, train).items():
        z = space(test)
        found[name] = separation(z, label, space(other), other_label)
        if (label == BAD).any():
            drifts[name] = drift(z, test, label)
        if name in models:
            pictures.append(_scatter(name, space(drawn(train, rng)), z, label, umap))
    rows = tuple(
        (
            name,
            f"{one.silhouette:.3f}",
            f"{one.probe:.3f}",
            f"{one.neighbours:.3f}",
            f"{drifts[name].correlation:+.2f}" if name in drifts else "",
        )
        for name, one in found.items()
    )
    best = max(models, key=lambda name: found[name].silhouette) if models else ""
    text = f"{len(test)} test windows of {', '.join(sorted(set(label.tolist())))}, as many of each kind. " + (
        f"The best silhouette is {found[best].silhouette:.3f} ({best}); channel means alone, without any model, "
        f"reach {found['channel means, no model'].silhouette:.3f}."
        if best
        else ""
    )
    table = Table(
        "Kinds of jobs in each space",
        ("space", "silhouette", "linear probe", "5 nearest", "distance to bad I/O ~ iowait"),
        rows,
        "Probe and neighbours: accuracy on test campaigns after learning on validation campaigns. Last column: rank "
        "correlation of a window's distance to the centre of bad I/O with its maximum iowait.",
        yardsticks=2,
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
