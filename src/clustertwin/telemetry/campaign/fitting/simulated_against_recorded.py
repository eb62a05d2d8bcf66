"""Compare simulated with recorded windows: two sets of windows -> one row per kind of job.

Each row has the distance of the marginals, the distance of the spectra, and the AUC of a classifier that separates
single windows of the two sets. For reference, it also has the AUC between two halves of the recording, split by jobs:
no simulation can be closer to the recording than the recording is to itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import InputError
from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.telemetry.campaign.fitting.fit_recordings import open_recordings
from clustertwin.telemetry.campaign.fitting.window_features import features, power_spectrum

_FOLDS = 4
_HALVINGS = 3
_MOST_WINDOWS = 300  # of each set, drawn at random to limit the time
_FEWEST_JOBS = 4  # with fewer jobs, cross-validation splits by time
_CONSTANT = 0.01  # the spectrum of a channel with a smaller standard deviation is not compared


@dataclass(frozen=True, slots=True)
class KindComparison:
    """One kind of job, recorded and simulated."""

    job_type: str
    anomaly: str
    recorded_windows: int
    simulated_windows: int
    recorded_means: tuple[float, ...]  # per channel
    simulated_means: tuple[float, ...]
    marginal_distance: float  # Wasserstein distance of the ratios; worst channel
    spectral_distance_db: float  # root mean square over frequencies; worst channel that is not constant
    auc: float  # of a classifier, simulated against recorded windows; 0.5: indistinguishable
    recorded_auc: float  # of the same classifier between halves of the recording; NaN if there are too few jobs


def windows_of(root: Path, length_s: int, stride_s: int | None = None) -> Windows:
    """All windows of every recording at or below a directory."""
    return Windows.concat([recording.windows(length_s, stride_s) for recording in open_recordings([root])])


def compare(recorded: Windows, simulated: Windows, seed: int = 0) -> list[KindComparison]:
    """A row for every kind of job that is in both sets."""
    if recorded.values.shape[1] != simulated.values.shape[1]:
        raise InputError("compare", "the windows have different lengths")
    recorded_rows, simulated_rows = kinds_of(recorded), kinds_of(simulated)
    common = sorted(set(recorded_rows) & set(simulated_rows))
    if not common:
        raise InputError(
            "compare",
            f"no kind of job in common: {_names(recorded_rows)} recorded, {_names(simulated_rows)} simulated",
        )
    return [
        _compare_kind(kind, recorded.take(recorded_rows[kind]), simulated.take(simulated_rows[kind]), seed)
        for kind in common
    ]


def kinds_of(windows: Windows) -> dict[tuple[str, str], NDArray[np.intp]]:
    """The indices of the fully valid windows of each kind, (job type, anomaly).

    Normal windows of a job with an anomaly are left out, because they may overlap the anomaly.
    """
    columns = (windows.campaign, windows.job, windows.job_type, windows.anomaly, windows.valid.all(axis=1))
    rows = list(zip(*(np.asarray(column).tolist() for column in columns), strict=True))
    anomalous_jobs = {(campaign, job) for campaign, job, _, anomaly, _ in rows if anomaly}
    kinds: dict[tuple[str, str], list[int]] = {}
    for i, (campaign, job, job_type, anomaly, valid) in enumerate(rows):
        if valid and job_type != "mixed" and (anomaly or (campaign, job) not in anomalous_jobs):
            kinds.setdefault((job_type, anomaly), []).append(i)
    return {kind: np.array(indices, np.intp) for kind, indices in kinds.items()}


def _names(kinds: dict[tuple[str, str], NDArray[np.intp]]) -> str:
    return ", ".join("/".join(part for part in kind if part) for kind in sorted(kinds)) or "nothing"


def _compare_kind(kind: tuple[str, str], recorded: Windows, simulated: Windows, seed: int) -> KindComparison:
    rng = np.random.default_rng(seed)
    counts = recorded_windows, simulated_windows = len(recorded), len(simulated)
    recorded, simulated = (
        side.take(np.sort(rng.permutation(count)[:_MOST_WINDOWS]))
        for side, count in zip((recorded, simulated), counts, strict=True)
    )
    real, drawn = recorded.values[..., :4], simulated.values[..., :4]
    jobs, drawn_jobs = _groups(recorded), _groups(simulated)
    return KindComparison(
        *kind,
        recorded_windows=recorded_windows,
        simulated_windows=simulated_windows,
        recorded_means=tuple(real.mean(axis=(0, 1)).tolist()),
        simulated_means=tuple(drawn.mean(axis=(0, 1)).tolist()),
        marginal_distance=marginal_distance(real, drawn),
        spectral_distance_db=spectral_distance_db(real, drawn),
        auc=separability(real, drawn, jobs, drawn_jobs, rng),
        recorded_auc=_between_halves(real, jobs, rng),
    )


def marginal_distance(recorded: NDArray[np.floating], simulated: NDArray[np.floating]) -> float:
    """The Wasserstein distance between the distributions of the ratios; worst channel."""
    levels = (np.arange(1000) + 0.5) / 1000
    pooled = [np.quantile(values.reshape(-1, values.shape[-1]), levels, axis=0) for values in (recorded, simulated)]
    return float(np.abs(pooled[0] - pooled[1]).mean(axis=0).max())


def spectral_distance_db(recorded: NDArray[np.floating], simulated: NDArray[np.floating]) -> float:
    """The distance of the mean spectra in decibels, without frequency zero; worst channel that is not constant."""
    varying = recorded.std(axis=(0, 1)) >= _CONSTANT
    if not varying.any():
        return 0.0
    mean = [np.log10(power_spectrum(values[..., varying]).mean(axis=0)[1:] + 1e-9) for values in (recorded, simulated)]
    return float(np.sqrt(((10 * (mean[0] - mean[1])) ** 2).mean(axis=0)).max())


def separability(
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    first_jobs: NDArray[np.intp],
    second_jobs: NDArray[np.intp],
    rng: np.random.Generator,
) -> float:
    """Cross-validated AUC of gradient boosting that separates single windows of two sets; folds never split a job."""
    fewest_jobs = min(len(set(first_jobs.tolist())), len(set(second_jobs.tolist())))
    if fewest_jobs < 2:
        return float("nan")
    ensemble, metrics = require("sklearn.ensemble", "models"), require("sklearn.metrics", "models")
    x = np.concatenate([features(first), features(second)])
    y = np.r_[np.zeros(len(first)), np.ones(len(second))]
    # Folds are assigned to each set separately, so that every fold has jobs of both.
    folds = min(_FOLDS, fewest_jobs)
    fold = np.concatenate([_assign_folds(jobs, folds, rng) for jobs in (first_jobs, second_jobs)])
    score = np.zeros(len(y))
    for k in range(folds):
        model = ensemble.GradientBoostingClassifier(
            n_estimators=60, max_depth=3, subsample=0.7, max_features="sqrt", random_state=int(rng.integers(2**31))
        )
        test, balance = fold == k, np.where(y == 0, len(second) / len(first), 1.0)
        model.fit(x[~test], y[~test], sample_weight=balance[~test])
        score[test] = model.predict_proba(x[test])[:, 1]
    return float(np.mean([metrics.roc_auc_score(y[fold == k], score[fold == k]) for k in range(folds)]))


def _between_halves(values: NDArray[np.floating], jobs: NDArray[np.intp], rng: np.random.Generator) -> float:
    """The AUC between two halves of the recorded jobs, averaged over a few random halvings."""
    names = np.unique(jobs)
    if len(names) < _FEWEST_JOBS:
        return float("nan")
    aucs = []
    for _ in range(_HALVINGS):
        first = np.isin(jobs, rng.permutation(names)[: len(names) // 2])
        aucs.append(separability(values[first], values[~first], jobs[first], jobs[~first], rng))
    return float(np.mean(aucs))


def _groups(windows: Windows) -> NDArray[np.intp]:
    """A number for each job. Without a job, or with too few jobs for folds, a number for each time and node.

    Overlapping windows can then be in two folds, which biases the AUC upwards.
    """
    columns = (windows.campaign, windows.job, windows.node, windows.start_s // windows.values.shape[1])
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    jobs = {row[:2] for row in rows if row[1]}
    names = [str(row[:2] if row[1] and len(jobs) >= _FEWEST_JOBS else row) for row in rows]
    return np.unique(names, return_inverse=True)[1].astype(np.intp)


def _assign_folds(jobs: NDArray[np.intp], count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """A fold for every window, equal for all windows of a job."""
    names = rng.permutation(np.unique(jobs))
    folds = np.empty(int(names.max()) + 1, np.intp)
    folds[names] = np.arange(len(names)) % count
    return folds[jobs]
