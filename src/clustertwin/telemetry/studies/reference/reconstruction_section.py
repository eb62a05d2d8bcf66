"""How well windows are put together again: an ensemble of each architecture -> errors, silhouettes, traces.

The errors are mean squared differences over channels and seconds. Every table has the rows of what needs no network:
the four channel means of a window, and principal components of as many numbers as the models have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Windows
from clustertwin.page import COLOURS, figure, svg
from clustertwin.telemetry.models.batches import group_windows
from clustertwin.telemetry.models.contract import Autoencoder, Shape
from clustertwin.telemetry.studies.reference.directions import job_directions
from clustertwin.telemetry.studies.reference.embedding_quality import (
    BAD,
    KindPca,
    Pca,
    Space,
    drawn_rows,
    labels,
    means,
    silhouette,
    statistics,
)
from clustertwin.telemetry.studies.reference.ensembles import Judged
from clustertwin.telemetry.studies.reference.section import Picture, Section, Table, spread
from clustertwin.telemetry.studies.reference.study_data import Data

ERRORS = ("model", "numbers", "error, normal", "error, bad I/O", "ratio", "of PCA's")
COLUMNS = (*ERRORS, "silhouette", "by jobs", "models", "CPU s")


Embed = Callable[[Windows], tuple[Space, NDArray[np.floating]]]  # embedding and error of each window


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What needs no training, judged as the models are."""

    normal: float
    bad: float
    silhouette: float
    by_jobs: float


def by_recipe(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    """The ensembles, in the order they came."""
    found: dict[str, list[Judged]] = {}
    for one in judged:
        found.setdefault(one.recipe, []).append(one)
    return found


def reconstruction(data: Data, judged: Sequence[Judged]) -> Section:
    """The section: one row for each ensemble, errors by kind of job, traces of the first model."""
    ensembles = by_recipe(judged)
    train, validation, test = data.normal("train"), data.normal("validation"), data.windows("test")
    latents = sorted({one.latent for one in judged})
    linear = {latent: _judge(Pca(train, latent).embed, validation, test) for latent in latents}
    yardsticks = [
        _row("channel means, no model", 4, _judge(_level, validation, test)),
        _row("means, deviations, steps, no model", 12, _judge(_statistics, validation, test)),
    ]
    yardsticks += [_row(f"PCA-{latent}", latent, linear[latent]) for latent in latents]
    yardsticks += [_told(train, test, latent, linear[latent].normal) for latent in latents]
    rows = []
    for name, ensemble in ensembles.items():
        normal, bad = [one.normal for one in ensemble], [one.anomalous for one in ensemble]
        rows.append(
            (
                name,
                ensemble[0].latent,
                spread(normal, 5),
                spread(bad),
                f"{np.mean(bad) / np.mean(normal):.0f}",
                f"{np.mean(normal) / linear[ensemble[0].latent].normal:.2f}",
                spread([one.silhouette for one in ensemble], 3),
                spread([one.by_jobs for one in ensemble], 3),
                len(ensemble),
                f"{np.mean([one.cpu_s for one in ensemble]):.0f}",
            )
        )
    kinds = sorted({kind for one in judged for kind in one.by_kind})
    errors = Table(
        "Error by kind of job",
        ("model", *kinds),
        tuple(
            (name, *(spread([one.by_kind[kind] for one in some], 5) for kind in kinds))
            for name, some in ensembles.items()
        ),
        "Bad I/O is not among the normal kinds: no model has seen it.",
    )
    main = Table(
        "Reconstruction and separation",
        COLUMNS,
        (*yardsticks, *rows),
        "Errors are mean squared over channels and seconds, on test campaigns; mean ± standard deviation over models. "
        "Of PCA's: error against principal components of as many numbers. Told the kind: components of each kind on "
        "its own, what a linear code could do that knew the job. Silhouette: of kinds of jobs; by jobs: in the "
        "directions that tell jobs apart, found without labels. CPU s: to train and judge one model, on one core.",
        yardsticks=len(yardsticks),
    )
    best = min(ensembles, key=lambda name: float(np.mean([one.normal for one in ensembles[name]])))
    lowest = float(np.mean([one.normal for one in ensembles[best]]))
    text = (
        f"{len(train)} training windows, {int((test.anomaly == '').sum())} normal test windows. The lowest error on "
        f"normal windows is {lowest:.5f} ({best}), {lowest / linear[ensembles[best][0].latent].normal:.2f} of that of "
        f"principal components of as many numbers. {len(judged)} models took "
        f"{sum(one.cpu_s for one in judged) / 60:.1f} CPU minutes to train and judge."
    )
    model = ensembles[best][0].model(Shape(train.schema, train.values.shape[1]))
    return Section(
        "reconstruction", "How well windows are put together again", text, (main, errors), (_traces(model, test, best),)
    )


def _judge(embed: Embed, validation: Windows, test: Windows) -> Yardstick:
    label, (z, error) = labels(test), embed(test)
    rows = drawn_rows(test, np.random.default_rng(0))
    bad = float(error[label == BAD].mean()) if (label == BAD).any() else float("nan")
    directions = job_directions(embed(validation)[0], validation)
    apart = tuple(silhouette(some, label[rows]) for some in (z[rows], z[rows] @ directions))
    return Yardstick(float(error[test.anomaly == ""].mean()), bad, *apart)


def _level(windows: Windows) -> tuple[Space, NDArray[np.floating]]:
    """The four channel means, and what they leave of a window."""
    rest = windows.values - windows.values.mean(axis=1, keepdims=True)
    return means(windows), np.square(rest).mean(axis=(1, 2))


def _statistics(windows: Windows) -> tuple[Space, NDArray[np.floating]]:
    """Level and restlessness of a window; only the level puts it together again."""
    return statistics(windows), _level(windows)[1]


def _row(name: str, numbers: int, one: Yardstick) -> tuple[object, ...]:
    errors = (f"{one.normal:.5f}", f"{one.bad:.4f}", f"{one.bad / one.normal:.0f}")
    return (name, numbers, *errors, "", f"{one.silhouette:.3f}", f"{one.by_jobs:.3f}", "", "")


def _told(train: Windows, test: Windows, latent: int, pca: float) -> tuple[object, ...]:
    """How far a linear code gets that is told the kind of job: what is left after it, no kind explains."""
    normal = float(np.nanmean(KindPca(train, latent).error(test)))
    return (f"PCA-{latent}, told the kind", latent, f"{normal:.5f}", "", "", f"{normal / pca:.2f}", "", "", "", "")


def _traces(model: Autoencoder, test: Windows, name: str) -> Picture:
    """One window of each kind, as it was and as it came back."""
    label = labels(test)
    kinds = sorted(set(label.tolist()) - {""})
    rows = np.array([np.flatnonzero(label == kind)[(label == kind).sum() // 2] for kind in kinds])
    grouped = group_windows(test.take(rows), "", model.config.shape)  # each window alone: how it looks without company
    made = model(grouped.batch(np.arange(len(rows))))[1].detach().numpy()
    figure_, axes = figure(11, 1.9 * len(kinds), len(kinds), 2)
    for i, kind in enumerate(kinds):
        for side, (values, title) in enumerate(((test.values[rows[i]], "original"), (made[i], "reconstructed"))):
            axis = axes[i, side]
            for channel, colour in zip(test.schema.names[:3], COLOURS, strict=False):
                axis.plot(values[:, test.schema.index(channel)], color=colour, linewidth=1, label=channel)
            axis.set(ylim=(-0.02, 1.02), title=f"{kind}, {title}")
    axes[0, 0].legend(frameon=False, labelcolor="linecolor", ncols=3)
    return Picture(f"Windows of each kind, and what {name} makes of them", svg(figure_, "traces"))
