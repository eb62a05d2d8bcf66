"""Two logs -> how well a classifier tells them apart (C2ST): 0.5 it cannot, 1 it always can.

Gradient-boosted trees (scikit-learn's histogram kind, 15 leaves, 100 rounds), five-fold cross-validated; the area under
the ROC curve over all held-out predictions. Rows: the compared columns of one job. Windows: those of 16 consecutive
jobs, in order, not overlapping; what rows hide (bursts, repeated submissions), windows show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.workload.fidelity.sample import Sample

Floats = NDArray[np.float64]

WINDOW_JOBS = 16
FOLDS = 5
LEAVES = 15


@dataclass(frozen=True, slots=True)
class C2st:
    row_auc: float
    window_auc: float


def windows(table: Floats, length: int = WINDOW_JOBS) -> Floats:
    """(job, column) -> (window, length * column), the jobs of each window in order."""
    whole = len(table) // length
    return table[: whole * length].reshape(whole, -1)


def auc(real: Floats, synthetic: Floats, seed: int = 0) -> float:
    """How well trees tell the rows of two tables apart; 0.5 where there are too few to try."""
    if min(len(real), len(synthetic)) < 2 * FOLDS:
        return 0.5
    ensemble = require("sklearn.ensemble", "models")
    selection = require("sklearn.model_selection", "models")
    metrics = require("sklearn.metrics", "models")
    table = np.concatenate([real, synthetic])
    label = np.concatenate([np.zeros(len(real)), np.ones(len(synthetic))])
    trees = ensemble.HistGradientBoostingClassifier(max_leaf_nodes=LEAVES, early_stopping=False, random_state=seed)
    folds = selection.StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    # On a busy machine the threads of such small fits wait for each other far longer than they work.
    with require("threadpoolctl", "models").threadpool_limits(1):
        chance = selection.cross_val_predict(trees, table, label, cv=folds, method="predict_proba")[:, 1]
    return float(metrics.roc_auc_score(label, chance))


def c2st(real: Sample, synthetic: Sample, names: tuple[str, ...], seed: int = 0) -> C2st:
    """Rows and windows of the same columns."""
    a, b = real.table(names), synthetic.table(names)
    return C2st(auc(a, b, seed), auc(windows(a), windows(b), seed))
