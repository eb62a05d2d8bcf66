"""Uncertainty of a variational model: posterior draws -> coverage of its error bars, and detection by uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.telemetry.models.architectures.vae import VariationalAutoencoder, kl_divergence
from clustertwin.telemetry.models.batches import group_windows
from clustertwin.telemetry.models.contract import Autoencoder
from clustertwin.telemetry.studies.reference.section import Section, Table
from clustertwin.telemetry.studies.reference.study_data import StudyData
from clustertwin.telemetry.studies.window_metrics import roc_auc

DRAWS = 20
LEVELS = (0.5, 0.8, 0.95)  # of the error bars
_BATCH = 2048

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """What a variational model says of each window, and whether its error bars hold the true seconds."""

    error: Array  # (n,) of the mean reconstruction
    spread: Array  # (n,) mean variance of the reconstruction over draws from the posterior
    divergence: Array  # (n,) KL divergence of the posterior from the prior
    negative_elbo: Array  # (n,)
    held: Array  # (n, level) part of the values within the bar, with the noise that the model assumes
    held_by_draws: Array  # (n, level) the same by the spread of the draws alone


@torch.no_grad()
def measure_uncertainty(model: VariationalAutoencoder, windows: Windows, seed: int = 0) -> Uncertainty:
    """Decode draws from each window's posterior; the error bar is a normal interval around their mean."""
    torch.manual_seed(seed)
    normal = require("scipy.stats", "models").norm
    widths = torch.tensor([float(normal.ppf(0.5 + level / 2)) for level in LEVELS])
    data = group_windows(windows, model.graph, model.config.shape)
    columns: list[list[Array]] = []
    for batch in data.batches(_BATCH):
        mean, log_variance = model.posterior(batch)
        scale = (0.5 * log_variance).exp()
        draws = torch.stack([model.ratios(model.decode(mean + torch.randn_like(mean) * scale)) for _ in range(DRAWS)])
        centre, variance = draws.mean(0), draws.var(0)  # (n, length, channel)
        off = (batch.x - centre).abs()
        held = [
            (off[..., None] <= (variance + noise).sqrt()[..., None] * widths).float().mean((1, 2))  # (n, level)
            for noise in (model.config.sigma**2, 0.0)
        ]
        elbo = model.elbo(batch, mean, mean, log_variance)
        divergence = kl_divergence(mean, log_variance)
        parts = (off.square().mean((1, 2)), variance.mean((1, 2)), divergence, -elbo, *held)
        columns.append([part.double().numpy() for part in parts])
    back = np.argsort(data.order)
    return Uncertainty(*(np.concatenate(column)[back] for column in zip(*columns, strict=True)))


def uncertainty_section(data: StudyData, model: Autoencoder | None) -> Section:
    """The section: do the error bars cover, and does uncertainty detect what the error does not?"""
    if not isinstance(model, VariationalAutoencoder):
        raise SettingsError("it needs the variational model; add `vae` to --models")
    test = data.windows("test")
    measured = measure_uncertainty(model, test)
    normal = test.anomaly == ""
    anomalies = sorted(set(test.anomaly.tolist()) - {""})
    groups = {"all normal windows": normal} | {name: test.anomaly == name for name in anomalies}
    coverage = Table(
        "Coverage of the error bars",
        (
            "windows",
            "n",
            *(f"{100 * level:g} % bar" for level in LEVELS),
            *(f"{100 * level:g} %, draws only" for level in LEVELS),
        ),
        tuple(
            (
                name,
                int(rows.sum()),
                *(f"{100 * x:.1f} %" for x in measured.held[rows].mean(axis=0)),
                *(f"{100 * x:.1f} %" for x in measured.held_by_draws[rows].mean(axis=0)),
            )
            for name, rows in groups.items()
        ),
        f"The part of all seconds and channels that lies within the bar, from {DRAWS} draws of the posterior. A bar "
        f'contains the noise that the model assumes (standard deviation {model.config.sigma:g}); "draws only" leaves '
        "it out.",
    )
    scores = {
        "error": measured.error,
        "spread of the reconstruction": measured.spread,
        "KL divergence": measured.divergence,
        "negative ELBO": measured.negative_elbo,
    }
    detection = Table(
        "ROC-AUC of error and uncertainty",
        ("score", *anomalies),
        tuple(
            (name, *(f"{roc_auc(score[normal], score[groups[anomaly]]):.3f}" for anomaly in anomalies))
            for name, score in scores.items()
        ),
        "Windows with the anomaly against all normal windows.",
    )
    bar = measured.held[normal].mean(axis=0)[LEVELS.index(0.8)]
    text = f"The 80 % error bars of the variational model hold {100 * bar:.1f} % of the normal seconds."
    if anomalies:
        means = {
            name: np.mean([roc_auc(x[normal], x[groups[anomaly]]) for anomaly in anomalies])
            for name, x in scores.items()
        }
        best = max(means, key=lambda name: means[name])
        text += f" Over {len(anomalies)} anomalies the error has a mean ROC-AUC of {means['error']:.3f}; "
        text += "nothing else detects more." if best == "error" else f"{best} has {means[best]:.3f}."
    return Section("uncertainty", "Uncertainty of the variational model", text, (coverage, detection))
