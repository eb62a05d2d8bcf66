"""Which published user is which person? Names, and profiles of sizes, limits and run times -> how well they link."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.privacy.attack_score import AttackScore, score_claims
from clustertwin.workload.privacy.attacked_log import AttackedLog

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_PEOPLE = 200
LEAST_JOBS = 5
CELLS = 4096


def link(known: AttackedLog, published: AttackedLog, column: str = "user") -> AttackScore:
    """Pairs of a known and a published user (or project). A claim is true if both have the same name.

    The attacker knows how a person works and takes the published user with the most similar jobs.
    """
    codes = [_frequent(getattr(log, column)) for log in (known, published)]
    if min(len(codes[0]), len(codes[1])) < 2:
        return AttackScore()
    profiles = [_profiles(log, getattr(log, column), its) for log, its in zip((known, published), codes, strict=True)]
    similar = profiles[0] @ profiles[1].T  # (known, published)
    same = codes[0][:, None] == codes[1][None, :]
    stratum = np.broadcast_to(np.arange(len(codes[0]))[:, None], same.shape)
    return score_claims(similar.ravel(), same.ravel(), stratum.ravel())


def names_published(real: Jobs, synthetic: Jobs) -> float:
    """The share of the user and project names of the real log that the synthetic log states. 0 if there are none."""
    known, stated = (
        {word for column in ("user", "group") for word in jobs.names.get(column, ())} for jobs in (real, synthetic)
    )
    return len(known & stated) / len(known) if known else 0.0


def _frequent(codes: Ints) -> Ints:
    distinct, counts = np.unique(codes[codes >= 0], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_PEOPLE]
    return np.sort(distinct[order[counts[order] >= LEAST_JOBS]])


def _profiles(log: AttackedLog, people: Ints, chosen: Ints) -> Floats:
    """(person, cell) how often each size, limit and class of run time occurs, as a vector of length 1."""
    run_class = np.log2(np.maximum(log.run_s, 1)).astype(np.int64)
    inside = np.isin(people, chosen)
    cell = (log.shape[inside] * 31 + run_class[inside]) % CELLS
    at = np.searchsorted(chosen, people[inside]) * CELLS + cell
    counts = np.bincount(at, minlength=len(chosen) * CELLS).reshape(len(chosen), CELLS)
    profile = np.log1p(counts)
    return np.asarray(profile / np.maximum(np.linalg.norm(profile, axis=1, keepdims=True), 1e-12))
