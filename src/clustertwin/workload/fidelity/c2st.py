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


def folds(table: Floats, seed: int) -> NDArray[np.int64]:
    """(row,) the fold each row is held out in; equal rows share one.

    Otherwise a copy would be judged by trees that saw its original under the other label, and a generator that copies
    would score below 0.5, better than any honest one.
    """
    distinct, place = np.unique(table, axis=0, return_inverse=True)
    return np.random.default_rng(seed).permutation(np.arange(len(distinct)) % FOLDS)[place.ravel()]


def auc(real: Floats, synthetic: Floats, seed: int = 0, alike: slice | NDArray[np.intp] = slice(None)) -> float:
    """How well trees tell the rows of two tables apart; 0.5 where there are too few to try.

    Rows that are equal in the columns `alike` are held out together.
    """
    if min(len(real), len(synthetic)) < 2 * FOLDS:
        return 0.5
    ensemble = require("sklearn.ensemble", "models")
    selection = require("sklearn.model_selection", "models")
    metrics = require("sklearn.metrics", "models")
    table = np.concatenate([real, synthetic])
    label = np.concatenate([np.zeros(len(real)), np.ones(len(synthetic))])
    trees = ensemble.HistGradientBoostingClassifier(max_leaf_nodes=LEAVES, early_stopping=False, random_state=seed)
    held_out = selection.PredefinedSplit(folds(table[:, alike], seed))
    # On a busy machine the threads of such small fits wait for each other far longer than they work.
    with require("threadpoolctl", "models").threadpool_limits(1):
        chance = selection.cross_val_predict(trees, table, label, cv=held_out, method="predict_proba")[:, 1]
    return float(metrics.roc_auc_score(label, chance))


def c2st(real: Sample, synthetic: Sample, names: tuple[str, ...], seed: int = 0) -> C2st:
    """Rows and windows of the same columns; jobs that differ in their arrival alone are copies."""
    a, b = real.table(names), synthetic.table(names)
    job = np.array([i for i, name in enumerate(names) if name != "interval"])
    jobs = (np.arange(WINDOW_JOBS)[:, None] * len(names) + job).ravel()  # the same columns of each job of a window
    return C2st(auc(a, b, seed, job), auc(windows(a), windows(b), seed, jobs))
