"""Reconstruction: an ensemble of each architecture -> reconstruction errors, silhouettes, example traces.

Errors are mean squared differences over channels and seconds. The tables include baselines that need no network: the
channel means of a window, and principal components with the latent sizes of the models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Windows
from clustertwin.page import COLOURS, figure, svg
from clustertwin.telemetry.models.contract import Autoencoder, Shape
from clustertwin.telemetry.studies.reference.embedding_quality import (
    BAD_IO,
    Embedding,
    Pca,
    PcaPerKind,
    balanced_sample,
    channel_means,
    channel_statistics,
    kind_labels,
    reconstruct,
    silhouette,
)
from clustertwin.telemetry.studies.reference.ensembles import EvaluatedMember
from clustertwin.telemetry.studies.reference.fisher_discriminant import discriminant_directions
from clustertwin.telemetry.studies.reference.section import Picture, Section, Table, mean_and_deviation, number
from clustertwin.telemetry.studies.reference.study_data import StudyData
from clustertwin.telemetry.studies.window_metrics import roc_auc

COLUMNS = (
    *("model", "numbers", "error, normal", "error, bad I/O", "ratio", "of PCA's"),
    *("silhouette", "by jobs", "models", "CPU s"),
)

QUANTILES = (0.5, 0.9, 0.99)
MOST_KINDS = 8  # in the figure

Embed = Callable[[Windows], tuple[Embedding, NDArray[np.floating]]]  # embedding and error of each window


@dataclass(frozen=True, slots=True)
class BaselineResult:
    """A baseline without training, evaluated like the models."""

    normal: float
    bad_io: float
    silhouette: float
    by_jobs: float


def by_recipe(members: Sequence[EvaluatedMember]) -> dict[str, list[EvaluatedMember]]:
    """The ensemble of each recipe, in the original order."""
    ensembles: dict[str, list[EvaluatedMember]] = {}
    for member in members:
        ensembles.setdefault(member.recipe, []).append(member)
    return ensembles


def reconstruction_section(data: StudyData, members: Sequence[EvaluatedMember]) -> Section:
    """The section: one row per ensemble, errors by kind of job, traces of the model with the lowest error."""
    ensembles = by_recipe(members)
    train, validation, test = data.normal("train"), data.normal("validation"), data.windows("test")
    latents = sorted({member.latent for member in members})
    pca = {latent: _evaluate(Pca(train, latent).embed, validation, test) for latent in latents}
    baselines = [
        _baseline_row("channel means, no model", 4, _evaluate(_mean_baseline, validation, test)),
        _baseline_row("means, deviations, steps, no model", 12, _evaluate(_statistics_baseline, validation, test)),
    ]
    baselines += [_baseline_row(f"PCA-{latent}", latent, pca[latent]) for latent in latents]
    baselines += [_pca_per_kind_row(train, test, latent, pca[latent].normal) for latent in latents]
    rows = [_ensemble_row(name, ensemble, pca) for name, ensemble in ensembles.items()]
    main = Table(
        "Reconstruction and separation",
        COLUMNS,
        (*baselines, *rows),
        "Errors are mean squared errors over channels and seconds on test campaigns; mean ± standard deviation over "
        "the models of an ensemble. Numbers: size of the embedding. Of PCA's: the error divided by that of PCA with "
        "the same number of components. Per kind of job: separate components for each kind, a linear code that also "
        "knows the kind. Silhouette: of the kinds of jobs; by jobs: in the discriminant directions of jobs, which need "
        "no labels. CPU s: to train and evaluate one model on one core.",
        baselines=len(baselines),
    )
    best = min(ensembles, key=lambda name: _mean_error(ensembles[name]))
    lowest, pca_error = _mean_error(ensembles[best]), pca[ensembles[best][0].latent].normal
    text = (
        f"{len(train)} training windows, {int((test.anomaly == '').sum())} normal test windows. {best} has the lowest "
        f"error on normal windows, {lowest:.5f}, which is {lowest / pca_error:.2f} of the error of PCA with the same "
        f"number of components. Training and evaluating all models ({len(members)}) took "
        f"{sum(member.cpu_s for member in members) / 60:.1f} CPU minutes."
    )
    shape = Shape(train.schema, train.values.shape[1])
    models = {name: ensemble[0].model(shape) for name, ensemble in ensembles.items()}
    tables = (
        main,
        _errors_by_kind(ensembles),
        _errors_by_channel(models, test),
        _auc_by_anomaly(ensembles, train, test),
    )
    pictures = (_traces(models, test),)
    return Section("reconstruction", "Reconstruction", text, tuple(t for t in tables if t.rows), pictures)


def _mean_error(ensemble: Sequence[EvaluatedMember]) -> float:
    return float(np.mean([member.normal for member in ensemble]))


def _ensemble_row(name: str, ensemble: Sequence[EvaluatedMember], pca: dict[int, BaselineResult]) -> tuple[object, ...]:
    normal, bad_io = [member.normal for member in ensemble], [member.anomalous for member in ensemble]
    return (
        name,
        ensemble[0].latent,
        mean_and_deviation(normal, 5),
        mean_and_deviation(bad_io),
        number(float(np.mean(bad_io) / np.mean(normal)), 0),
        f"{np.mean(normal) / pca[ensemble[0].latent].normal:.2f}",
        mean_and_deviation([member.silhouette for member in ensemble], 3),
        mean_and_deviation([member.by_jobs for member in ensemble], 3),
        len(ensemble),
        f"{np.mean([member.cpu_s for member in ensemble]):.0f}",
    )


def _errors_by_kind(ensembles: dict[str, list[EvaluatedMember]]) -> Table:
    kinds = sorted({kind for ensemble in ensembles.values() for member in ensemble for kind in member.by_kind})
    return Table(
        "Error by kind of job",
        ("model", *kinds),
        tuple(
            (name, *(mean_and_deviation([member.by_kind[kind] for member in ensemble], 5) for kind in kinds))
            for name, ensemble in ensembles.items()
        ),
        "Bad I/O is an anomaly: the training data contain none.",
    )


def _errors_by_channel(models: Mapping[str, Autoencoder], test: Windows) -> Table:
    """Where the error of normal windows lies, and how it is distributed: a mean hides a few windows that fail."""
    normal = test.take(test.anomaly == "")
    rows = []
    for name, model in models.items():
        squared = np.square(reconstruct(model, normal) - normal.values).mean(axis=1)  # (n, channel)
        error = squared.mean(axis=1)
        cells = [*squared.mean(axis=0), *np.quantile(error, QUANTILES), error.max()]
        rows.append((name, *(f"{cell:.5f}" for cell in cells)))
    return Table(
        "Error of normal windows by channel, and its distribution",
        ("model", *test.schema.names, *(f"{100 * q:g} % below" for q in QUANTILES), "largest"),
        tuple(rows),
        "One model of each ensemble. The first columns are means over windows; the others are quantiles of a window's "
        "error over all channels.",
    )


def _auc_by_anomaly(ensembles: dict[str, list[EvaluatedMember]], train: Windows, test: Windows) -> Table:
    anomalies = sorted({name for ensemble in ensembles.values() for member in ensemble for name in member.auc})
    normal = test.anomaly == ""
    baselines: list[tuple[object, ...]] = []
    for name, embed in (("channel means, no model", _mean_baseline), ("PCA-16", Pca(train, 16).embed)):
        error = embed(test)[1]
        baselines.append((name, *(number(roc_auc(error[normal], error[test.anomaly == a]), 3) for a in anomalies)))
    rows = [
        (name, *(mean_and_deviation([member.auc[anomaly] for member in ensemble], 3) for anomaly in anomalies))
        for name, ensemble in ensembles.items()
    ]
    return Table(
        "ROC-AUC of the error by anomaly",
        ("model", *anomalies),
        (*baselines, *rows) if anomalies else (),
        "Windows with the anomaly against all normal windows of the test campaigns; .5 is chance. The error of the "
        "channel means is the variance within a window.",
        baselines=len(baselines),
    )


def _evaluate(embed: Embed, validation: Windows, test: Windows) -> BaselineResult:
    label, (z, error) = kind_labels(test), embed(test)
    sample = balanced_sample(test, np.random.default_rng(0))
    bad_io = float(error[label == BAD_IO].mean()) if (label == BAD_IO).any() else float("nan")
    directions = discriminant_directions(embed(validation)[0], validation)
    silhouettes = tuple(silhouette(x, label[sample]) for x in (z[sample], z[sample] @ directions))
    return BaselineResult(float(error[test.anomaly == ""].mean()), bad_io, *silhouettes)


def _mean_baseline(windows: Windows) -> tuple[Embedding, NDArray[np.floating]]:
    """The channel means, and the error of reconstructing every second by them."""
    residual = windows.values - windows.values.mean(axis=1, keepdims=True)
    return channel_means(windows), np.square(residual).mean(axis=(1, 2))


def _statistics_baseline(windows: Windows) -> tuple[Embedding, NDArray[np.floating]]:
    """The channel statistics; only the means contribute to the reconstruction."""
    return channel_statistics(windows), _mean_baseline(windows)[1]


def _baseline_row(name: str, numbers: int, result: BaselineResult) -> tuple[object, ...]:
    errors = (number(result.normal, 5), number(result.bad_io, 4), number(result.bad_io / result.normal, 0))
    return (name, numbers, *errors, "", number(result.silhouette, 3), number(result.by_jobs, 3), "", "")


def _pca_per_kind_row(train: Windows, test: Windows, latent: int, pca_error: float) -> tuple[object, ...]:
    """The error that remains if a linear code also knows the kind of job."""
    known = (error := PcaPerKind(train, latent).error(test))[~np.isnan(error)]
    mean = float(known.mean()) if len(known) else float("nan")
    ratio = number(mean / pca_error, 2)
    return (f"PCA-{latent} per kind of job", latent, number(mean, 5), "", "", ratio, "", "", "", "")


def _traces(models: Mapping[str, Autoencoder], test: Windows) -> Picture:
    """One window of each kind beside its reconstruction by every model."""
    label = kind_labels(test)
    kinds = sorted(set(label.tolist()) - {""})[:MOST_KINDS]
    rows = np.array([np.flatnonzero(label == kind)[(label == kind).sum() // 2] for kind in kinds])
    windows = test.take(rows)
    columns = {"original": windows.values}
    columns |= {name: reconstruct(model, windows) for name, model in models.items()}
    drawing, axes = figure(2.1 * len(columns), 1.6 * len(kinds), len(kinds), len(columns))
    for i, kind in enumerate(kinds):
        for axis, (name, values) in zip(axes[i], columns.items(), strict=True):
            for channel, colour in zip(test.schema.names[:3], COLOURS, strict=False):
                axis.plot(values[i, :, test.schema.index(channel)], color=colour, linewidth=0.8, label=channel)
            axis.set(ylim=(-0.02, 1.02), title=f"{kind}, {name}" if axis is axes[i, 0] else name)
    axes[0, 0].legend(frameon=False, labelcolor="linecolor", ncols=3, fontsize=6)
    return Picture("A window of each kind and its reconstruction by each model", svg(drawing, "traces"))
