"""How well detectors see: scorers, labelled moments -> ROC-AUC and recall for each anomaly, against all normal windows.

A scorer is any function of a moment that gives one number a thread, higher for stranger. All are judged on the same
windows: settled, valid, and not mixed. Nothing is point-adjusted.
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
class Cell:
    """One scorer on one anomaly."""

    windows: int
    auc: float
    recall: float  # where normal windows are called strange at the rate asked for
    found: float  # above the scorer's own threshold, NaN where it has none


@dataclass(frozen=True, slots=True)
class Assessment:
    """One scorer on everything."""

    normal: int  # windows
    false_alarms: float  # part of them above the scorer's own threshold, NaN where it has none
    cells: dict[str, Cell]  # by anomaly


def assess(
    scorers: Mapping[str, Scorer],
    test: Iterable[tuple[Moment, Windows]],
    rate: float = 1e-3,
    thresholds: Mapping[str, float] | None = None,
) -> dict[str, Assessment]:
    """Every scorer on every label; `rate` of the normal windows may be false alarms where recall is measured."""
    kept: dict[str, list[Array]] = {name: [] for name in scorers}
    labels = []
    for moment, window in test:
        judged = moment.settled & moment.windows()[1].all(1) & (window.job_type != "mixed")
        labels.append(window.anomaly[judged])
        for name, scorer in scorers.items():
            kept[name].append(np.nan_to_num(scorer(moment)[judged], nan=-np.inf))
    label = np.concatenate(labels) if labels else np.array([], np.str_)
    if not (label == "").any():
        raise SettingsError("nothing to compare with: no normal window among the moments")
    return {
        name: _assess(np.concatenate(kept[name]), label, rate, (thresholds or {}).get(name, np.nan)) for name in scorers
    }


def _assess(score: Array, label: NDArray[np.str_], rate: float, threshold: float) -> Assessment:
    normal = score[label == ""]
    level = np.quantile(normal, 1 - rate, method="higher")

    def part(some: Array) -> float:
        return float("nan") if np.isnan(threshold) else float((some > threshold).mean())

    cells = {}
    for anomaly in np.unique(label[label != ""]).tolist():
        strange = score[label == anomaly]
        recall = float((strange > level).mean())
        cells[anomaly] = Cell(len(strange), roc_auc(normal, strange), recall, part(strange))
    return Assessment(len(normal), part(normal), cells)


def roc_auc(normal: Array, strange: Array) -> float:
    """The chance that a strange one scores above a normal one; ties count half."""
    order = np.sort(normal)
    below = np.searchsorted(order, strange, side="left") + np.searchsorted(order, strange, side="right")
    return float(below.mean() / (2 * len(normal)))


def average_precision(label: NDArray[np.bool_], score: Array) -> float:
    """Area under precision and recall, by steps; scores that are equal are taken together."""
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(label[order])
    last = np.flatnonzero(np.diff(score[order], append=-np.inf))  # where one score ends and a lower one begins
    precision, recall = hits[last] / (last + 1), hits[last] / max(int(label.sum()), 1)
    return float((precision * np.diff(recall, prepend=0)).sum())
