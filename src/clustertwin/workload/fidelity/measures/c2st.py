"""Classifier two-sample test (C2ST): two logs -> the AUC of a classifier that separates them; 0.5 is chance, 1 perfect.

The classifier is gradient-boosted trees (scikit-learn's histogram version, 15 leaves, 100 rounds) with five-fold
cross-validation. The AUC is computed over all held-out predictions. *Rows* are the compared columns of one job.
*Windows* are the columns of 16 consecutive jobs, in order and not overlapping; they also show bursts and repeated
submissions.

Rows that are equal are held out together, so this test cannot see one row that a synthetic log repeats thousands of
times. The *judge* can: it divides 3,000 rows of each log at random, whatever they equal, and boosts for 50 rounds. It
scores below 0.5 for a generator that copies.

Of a large log, the trees see as many rows as `judged_sample` says, and windows of as many jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.measures.judged_sample import MOST_JUDGED_JOBS, judged_rows

Floats = NDArray[np.float64]

WINDOW_JOBS = 16
FOLDS = 5
LEAVES = 15
JUDGED_ROWS = 3_000
JUDGE_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class C2st:
    row_auc: float
    window_auc: float
    judge_auc: float  # of single rows, without holding equal rows out together


def windows(table: Floats, length: int = WINDOW_JOBS) -> Floats:
    """(job, column) -> (window, length * column), the jobs of each window in order."""
    count = len(table) // length
    return table[: count * length].reshape(count, -1)


def folds(table: Floats, seed: int) -> NDArray[np.int64]:
    """(row,) the fold in which each row is held out; equal rows share a fold.

    Otherwise the trees could train on the original of a held-out copy, with the other label, and a generator that
    copies would score below 0.5.
    """
    if not table.shape[1]:  # jobs that differ in nothing but their arrival are no copies of each other
        table = np.arange(len(table), dtype=np.float64)[:, None]
    distinct, index = np.unique(table, axis=0, return_inverse=True)
    return np.random.default_rng(seed).permutation(np.arange(len(distinct)) % FOLDS)[index.ravel()]


def auc(real: Floats, synthetic: Floats, seed: int = 0, identity: slice | NDArray[np.intp] = slice(None)) -> float:
    """AUC of trees that separate the rows of two tables; 0.5 if there are too few rows.

    Rows that are equal in the columns `identity` are held out together.
    """
    if min(len(real), len(synthetic)) < 2 * FOLDS:
        return 0.5
    ensemble = require("sklearn.ensemble", "models")
    selection = require("sklearn.model_selection", "models")
    metrics = require("sklearn.metrics", "models")
    table = np.concatenate([real, synthetic])
    label = np.concatenate([np.zeros(len(real)), np.ones(len(synthetic))])
    trees = ensemble.HistGradientBoostingClassifier(max_leaf_nodes=LEAVES, early_stopping=False, random_state=seed)
    fold = folds(table[:, identity], seed)
    if any(len(np.unique(label[fold != each])) < 2 for each in range(FOLDS)):
        # All rows of one log are equal, or nearly: no rows of it would be left to train on.
        fold = np.random.default_rng(seed).permutation(np.arange(len(table)) % FOLDS)
    held_out = selection.PredefinedSplit(fold)
    # One thread: on a busy machine the threads of such small fits mostly wait for each other.
    with require("threadpoolctl", "models").threadpool_limits(1):
        probability = selection.cross_val_predict(trees, table, label, cv=held_out, method="predict_proba")[:, 1]
    return float(metrics.roc_auc_score(label, probability))


def judge(real: Floats, synthetic: Floats, seed: int = 0) -> float:
    """AUC of trees that were fitted to one half of at most 3,000 rows of each table, on the other half."""
    if min(len(real), len(synthetic)) < 2 * FOLDS:
        return 0.5
    rng = np.random.default_rng(seed)
    parts = [table[rng.permutation(len(table))[:JUDGED_ROWS]] for table in (real, synthetic)]
    table = np.concatenate(parts)
    label = np.repeat([0.0, 1.0], [len(part) for part in parts])
    train = rng.random(len(table)) < 0.5
    metrics = require("sklearn.metrics", "models")
    ensemble = require("sklearn.ensemble", "models")
    trees = ensemble.HistGradientBoostingClassifier(max_iter=JUDGE_ROUNDS, early_stopping=False, random_state=seed)
    if min(len(np.unique(label[train])), len(np.unique(label[~train]))) < 2:
        return 0.5
    with require("threadpoolctl", "models").threadpool_limits(1):
        trees.fit(table[train], label[train])
        probability = trees.predict_proba(table[~train])[:, 1]
    return float(metrics.roc_auc_score(label[~train], probability))


def c2st(real: ComparedLog, synthetic: ComparedLog, names: tuple[str, ...], seed: int) -> C2st:
    """Rows and windows of the same columns. Jobs that differ only in their arrival count as copies."""
    a, b = real.table(names), synthetic.table(names)
    job = np.array([i for i, name in enumerate(names) if name != "interval"], dtype=np.intp)
    jobs = (np.arange(WINDOW_JOBS)[:, None] * len(names) + job).ravel()  # the same columns of each job of a window
    rows_a, rows_b = (judged_rows(table, MOST_JUDGED_JOBS, seed) for table in (a, b))
    runs_a, runs_b = (judged_rows(windows(table), MOST_JUDGED_JOBS // WINDOW_JOBS, seed) for table in (a, b))
    return C2st(auc(rows_a, rows_b, seed, job), auc(runs_a, runs_b, seed, jobs), judge(a, b, seed))
