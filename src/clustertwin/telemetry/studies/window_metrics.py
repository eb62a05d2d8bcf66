"""Window metrics: scorers, labelled moments -> ROC-AUC and recall for each anomaly against all normal windows.

A scorer is a function of a moment that returns one number per thread; higher is more anomalous. All scorers are
evaluated on the same windows: settled, valid, and not mixed. The metrics are not point-adjusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Windows
from clustertwin.telemetry.moments.moment import Moment

Array = NDArray[np.floating]
Scorer = Callable[[Moment], Array]


@dataclass(frozen=True, slots=True)
class AnomalyMetrics:
    """One scorer on one anomaly."""

    windows: int
    auc: float
    recall: float  # at the chosen false-positive rate
    recall_at_threshold: float  # at the scorer's own threshold; NaN if it has none


@dataclass(frozen=True, slots=True)
class ScorerMetrics:
    """One scorer on all anomalies."""

    normal_windows: int
    false_positive_rate: float  # at the scorer's own threshold; NaN if it has none
    anomalies: dict[str, AnomalyMetrics]


def evaluate_scorers(
    scorers: Mapping[str, Scorer],
    test: Iterable[tuple[Moment, Windows]],
    false_positive_rate: float = 1e-3,
    thresholds: Mapping[str, float] | None = None,
) -> dict[str, ScorerMetrics]:
    """The metrics of every scorer; recall is measured at `false_positive_rate` of the normal windows."""
    scores: dict[str, list[Array]] = {name: [] for name in scorers}
    labels = []
    for moment, window in test:
        evaluated = moment.settled & moment.windows()[1].all(1) & (window.job_type != "mixed")
        labels.append(window.anomaly[evaluated])
        for name, scorer in scorers.items():
            scores[name].append(np.nan_to_num(scorer(moment)[evaluated], nan=-np.inf))
    label = np.concatenate(labels) if labels else np.array([], np.str_)
    if not (label == "").any():
        raise SettingsError("the moments contain no normal window to compare with")
    return {
        name: _metrics(np.concatenate(scores[name]), label, false_positive_rate, (thresholds or {}).get(name, np.nan))
        for name in scorers
    }


def _metrics(score: Array, label: NDArray[np.str_], false_positive_rate: float, threshold: float) -> ScorerMetrics:
    normal = score[label == ""]
    level = np.quantile(normal, 1 - false_positive_rate, method="higher")

    def rate_above_threshold(some: Array) -> float:
        return float("nan") if np.isnan(threshold) else float((some > threshold).mean())

    anomalies = {}
    for anomaly in np.unique(label[label != ""]).tolist():
        anomalous = score[label == anomaly]
        recall = float((anomalous > level).mean())
        auc = roc_auc(normal, anomalous)
        anomalies[anomaly] = AnomalyMetrics(len(anomalous), auc, recall, rate_above_threshold(anomalous))
    return ScorerMetrics(len(normal), rate_above_threshold(normal), anomalies)


def roc_auc(normal: Array, anomalous: Array) -> float:
    """The probability that an anomalous window scores above a normal one; ties count half."""
    order = np.sort(normal)
    below = np.searchsorted(order, anomalous, side="left") + np.searchsorted(order, anomalous, side="right")
    return float(below.mean() / (2 * len(normal)))
