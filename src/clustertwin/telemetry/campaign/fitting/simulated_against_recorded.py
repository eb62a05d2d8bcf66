"""Tell recorded from simulated windows, if one can: two sets of windows -> one row per kind of job.

Three questions: are the values spread alike (marginals), do they change alike (spectra), and can a classifier
that sees single windows say which are simulated? Its AUC is read beside the AUC it reaches between two halves of
the recording, job by job: what no simulation can undercut.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import InputError
from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.telemetry.campaign.fitting.window_features import features, spectrum
from clustertwin.telemetry.recording import Recording, find

_FOLDS = 4
_HALVINGS = 3
_MOST_WINDOWS = 300  # of each side, drawn at random; more would only cost time
_FEWEST_JOBS = 4  # below this, cross-validation by moment
_QUIET = 0.01  # a channel whose ratios spread less than a tick has no spectrum worth comparing


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of job, recorded and simulated."""

    job_type: str
    anomaly: str
    recorded_windows: int
    simulated_windows: int
    recorded_means: tuple[float, ...]  # per channel
    simulated_means: tuple[float, ...]
    marginal_distance: float  # Wasserstein, in ratio; the worst channel
    spectral_distance_db: float  # root mean square over frequencies; the worst channel that moves
    auc: float  # of a classifier, simulated against recorded windows; 0.5: cannot tell
    recorded_auc: float  # of the same between halves of the recording; NaN where there is too little


def windows_of(root: Path, length_s: int, stride_s: int | None = None) -> Windows:
    """All windows of every recording at or below a directory."""
    directories = find(root)
    if not directories:
        raise InputError(root, "no recording here")
    return Windows.concat([Recording.open(directory).windows(length_s, stride_s) for directory in directories])


def compare(recorded: Windows, simulated: Windows, seed: int = 0) -> list[Row]:
    """A row for every kind of job that both have."""
    if recorded.values.shape[1] != simulated.values.shape[1]:
        raise InputError("compare", "windows of different lengths")
    ours, theirs = kinds_of(simulated), kinds_of(recorded)
    both = sorted(set(ours) & set(theirs))
    if not both:
        raise InputError("compare", f"no kind of job in common: {_names(theirs)} recorded, {_names(ours)} simulated")
    return [_row(kind, recorded.take(theirs[kind]), simulated.take(ours[kind]), seed) for kind in both]


def kinds_of(windows: Windows) -> dict[tuple[str, str], NDArray[np.intp]]:
    """Which whole windows are of which kind: (job type, anomaly).

    A healthy window of a job that went wrong is left out: it may reach into the anomaly.
    """
    columns = (windows.campaign, windows.job, windows.job_type, windows.anomaly, windows.valid.all(axis=1))
    rows = list(zip(*(np.asarray(column).tolist() for column in columns), strict=True))
    struck = {(campaign, job) for campaign, job, _, anomaly, _ in rows if anomaly}
    kinds: dict[tuple[str, str], list[int]] = {}
    for i, (campaign, job, job_type, anomaly, whole) in enumerate(rows):
        if whole and job_type != "mixed" and (anomaly or (campaign, job) not in struck):
            kinds.setdefault((job_type, anomaly), []).append(i)
    return {kind: np.array(indices, np.intp) for kind, indices in kinds.items()}


def _names(kinds: dict[tuple[str, str], NDArray[np.intp]]) -> str:
    return ", ".join("/".join(part for part in kind if part) for kind in sorted(kinds)) or "nothing"


def _row(kind: tuple[str, str], recorded: Windows, simulated: Windows, seed: int) -> Row:
    rng = np.random.default_rng(seed)
    windows = recorded_windows, simulated_windows = len(recorded), len(simulated)
    recorded, simulated = (
        side.take(np.sort(rng.permutation(count)[:_MOST_WINDOWS]))
        for side, count in zip((recorded, simulated), windows, strict=True)
    )
    real, drawn = recorded.values[..., :4], simulated.values[..., :4]
    jobs, drawn_jobs = _groups(recorded), _groups(simulated)
    return Row(
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


def marginal_distance(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """How far ratios must be moved, on average, to turn one distribution into the other; the worst channel."""
    levels = (np.arange(1000) + 0.5) / 1000
    pooled = [np.quantile(values.reshape(-1, values.shape[-1]), levels, axis=0) for values in (one, other)]
    return float(np.abs(pooled[0] - pooled[1]).mean(axis=0).max())


def spectral_distance_db(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Between mean spectra, in decibels over all frequencies but zero; the worst of the channels that move."""
    moving = one.std(axis=(0, 1)) >= _QUIET
    if not moving.any():
        return 0.0
    mean = [np.log10(spectrum(values[..., moving]).mean(axis=0)[1:] + 1e-9) for values in (one, other)]
    return float(np.sqrt(((10 * (mean[0] - mean[1])) ** 2).mean(axis=0)).max())


def separability(
    one: NDArray[np.floating],
    other: NDArray[np.floating],
    one_jobs: NDArray[np.intp],
    other_jobs: NDArray[np.intp],
    rng: np.random.Generator,
) -> float:
    """Cross-validated AUC of gradient boosting at telling single windows apart; a job is never on both sides."""
    if min(len(set(one_jobs.tolist())), len(set(other_jobs.tolist()))) < 2:
        return float("nan")
    ensemble, metrics = require("sklearn.ensemble", "models"), require("sklearn.metrics", "models")
    x = np.concatenate([features(one), features(other)])
    y = np.r_[np.zeros(len(one)), np.ones(len(other))]
    # Each job's fold, dealt like cards, the two sides apart: every fold has jobs of both.
    folds = min(_FOLDS, len(set(one_jobs.tolist())), len(set(other_jobs.tolist())))
    fold = np.concatenate([_deal(jobs, folds, rng) for jobs in (one_jobs, other_jobs)])
    score = np.zeros(len(y))
    for k in range(folds):
        model = ensemble.GradientBoostingClassifier(
            n_estimators=60, max_depth=3, subsample=0.7, max_features="sqrt", random_state=int(rng.integers(2**31))
        )
        here, balance = fold == k, np.where(y == 0, len(other) / len(one), 1.0)
        model.fit(x[~here], y[~here], sample_weight=balance[~here])
        score[here] = model.predict_proba(x[here])[:, 1]
    return float(np.mean([metrics.roc_auc_score(y[fold == k], score[fold == k]) for k in range(folds)]))


def _between_halves(values: NDArray[np.floating], jobs: NDArray[np.intp], rng: np.random.Generator) -> float:
    """The AUC between two halves of the recorded jobs, the mean of a few ways to halve them."""
    names = np.unique(jobs)
    if len(names) < _FEWEST_JOBS:
        return float("nan")
    found = []
    for _ in range(_HALVINGS):
        first = np.isin(jobs, rng.permutation(names)[: len(names) // 2])
        found.append(separability(values[first], values[~first], jobs[first], jobs[~first], rng))
    return float(np.mean(found))


def _groups(windows: Windows) -> NDArray[np.intp]:
    """A number per job; without a job, and where there are too few jobs to set any aside, one per moment of a node.

    Overlapping windows of neighbouring moments are then on both sides: the AUC errs on the high side.
    """
    columns = (windows.campaign, windows.job, windows.node, windows.start_s // windows.values.shape[1])
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    jobs = {row[:2] for row in rows if row[1]}
    names = [str(row[:2] if row[1] and len(jobs) >= _FEWEST_JOBS else row) for row in rows]
    return np.unique(names, return_inverse=True)[1].astype(np.intp)


def _deal(jobs: NDArray[np.intp], count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """A fold for every window, the same for all windows of a job."""
    names = rng.permutation(np.unique(jobs))
    folds = np.empty(int(names.max()) + 1, np.intp)
    folds[names] = np.arange(len(names)) % count
    return folds[jobs]
