"""How well windows are put together again: an ensemble of each architecture -> errors, silhouettes, traces.

The errors are mean squared differences over channels and seconds. Every table has the rows of what needs no network:
the four channel means of a window, and principal components of as many numbers as the models have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.page import COLOURS, figure, svg
from clustertwin.telemetry.batches import group
from clustertwin.telemetry.models.contract import Autoencoder, Shape
from clustertwin.telemetry.study.data import Data
from clustertwin.telemetry.study.embedding import BAD, Pca, Space, drawn, labels, means
from clustertwin.telemetry.study.ensembles import Judged
from clustertwin.telemetry.study.section import Picture, Section, Table, spread

COLUMNS = ("model", "numbers", "error, normal", "error, bad I/O", "ratio", "of PCA's", "silhouette", "models", "CPU s")


def by_recipe(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    """The ensembles, in the order they came."""
    found: dict[str, list[Judged]] = {}
    for one in judged:
        found.setdefault(one.recipe, []).append(one)
    return found


def reconstruction(data: Data, judged: Sequence[Judged]) -> Section:
    """The section: one row for each ensemble, errors by kind of job, traces of the first model."""
    ensembles = by_recipe(judged)
    train, test = data.normal("train"), data.windows("test")
    latents = sorted({one.latent for one in judged})
    pca = {latent: Pca(train, min(latent, data.length_s * 3)) for latent in latents}
    linear = {latent: _judge(test, *model.embed(test)) for latent, model in pca.items()}
    level = np.square(test.values - test.values.mean(axis=1, keepdims=True)).mean(axis=(1, 2))
    yardsticks = [_row("channel means, no model", 4, _judge(test, means(test), level))]
    yardsticks += [_row(f"PCA-{latent}", latent, linear[latent]) for latent in latents]
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
                f"{np.mean(normal) / linear[ensemble[0].latent][0]:.2f}",
                spread([one.silhouette for one in ensemble], 3),
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
        "Of PCA's: error against principal components of as many numbers.",
        yardsticks=len(yardsticks),
    )
    best = min(ensembles, key=lambda name: float(np.mean([one.normal for one in ensembles[name]])))
    lowest = float(np.mean([one.normal for one in ensembles[best]]))
    text = (
        f"{len(train)} training windows, {int((test.anomaly == '').sum())} normal test windows. The lowest error on "
        f"normal windows is {lowest:.5f} ({best}), {lowest / linear[ensembles[best][0].latent][0]:.2f} of that of "
        f"principal components of as many numbers."
    )
    model = ensembles[best][0].model(Shape(train.schema, train.values.shape[1]))
    return Section(
        "reconstruction", "How well windows are put together again", text, (main, errors), (_traces(model, test, best),)
    )


def _judge(test: Windows, z: Space, error: NDArray[np.floating]) -> tuple[float, float, float]:
    """Error of normal windows, error of bad I/O, silhouette."""
    label = labels(test)
    few = drawn(test, np.random.default_rng(0))
    # `drawn` keeps the windows' order: find its rows again by node, thread and time.
    rows = _rows(test, few)
    silhouette = float(require("sklearn.metrics", "models").silhouette_score(z[rows], label[rows]))
    bad = float(error[label == BAD].mean()) if (label == BAD).any() else float("nan")
    return float(error[test.anomaly == ""].mean()), bad, silhouette


def _rows(windows: Windows, some: Windows) -> NDArray[np.intp]:
    place = {
        key: i for i, key in enumerate(zip(windows.campaign, windows.node, windows.cpu, windows.start_s, strict=True))
    }
    return np.array([place[key] for key in zip(some.campaign, some.node, some.cpu, some.start_s, strict=True)])


def _row(name: str, numbers: int, judged: tuple[float, float, float]) -> tuple[object, ...]:
    normal, bad, silhouette = judged
    return (name, numbers, f"{normal:.5f}", f"{bad:.4f}", f"{bad / normal:.0f}", "", f"{silhouette:.3f}", "", "")


def _traces(model: Autoencoder, test: Windows, name: str) -> Picture:
    """One window of each kind, as it was and as it came back."""
    label = labels(test)
    kinds = sorted(set(label.tolist()) - {""})
    rows = np.array([np.flatnonzero(label == kind)[(label == kind).sum() // 2] for kind in kinds])
    grouped = group(test.take(rows), "", model.config.shape)  # each window alone: how it looks without company
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
