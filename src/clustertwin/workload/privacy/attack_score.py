"""Scores of true and of false claims -> how well an attack tells them apart: AUC, and detections at 1 % false alarms.

Claims are compared only within a stratum, such as one user and one weekday. Otherwise an attack would be credited for
knowing that busy users are busy, or that people work on Mondays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FALSE_POSITIVES = 0.01


@dataclass(frozen=True, slots=True)
class AttackScore:
    """0.5 and 0.01 are chance. `true_claims` is 0 if the attack could not be tried."""

    auc: float = 0.5
    tpr_at_1pct_fpr: float = FALSE_POSITIVES
    true_claims: int = 0

    def __str__(self) -> str:
        return f"{self.auc:.3f}" if self.true_claims else "not measured"


@dataclass(frozen=True, slots=True)
class AttackResult:
    """An attack on the synthetic log, and the same attack on a real log without the people that it asks about."""

    synthetic: AttackScore
    holdout: AttackScore

    @property
    def found(self) -> str:
        """True claims that the attack finds at 1 % false positives, as text."""
        return f"{self.synthetic.tpr_at_1pct_fpr:.1%}" if self.synthetic.true_claims else ""


def score_claims(scores: Floats, true: NDArray[np.bool_], stratum: Ints | None = None) -> AttackScore:
    """Higher scores should belong to true claims.

    >>> score_claims(np.array([3.0, 1, 2, 0]), np.array([True, False, True, False])).auc
    1.0
    """
    stratum = np.zeros(len(scores), dtype=np.int64) if stratum is None else stratum
    usable = _with_both(true, stratum)
    scores, true, stratum = scores[usable], true[usable], stratum[usable]
    if not len(scores):
        return AttackScore()
    rank = _ranks_within(scores, stratum)
    index = _numbered(stratum)
    positives = np.bincount(index, weights=true)
    negatives = np.bincount(index) - positives
    # The statistic of Mann and Whitney: pairs of a true and a false claim in the right order, ties counted half.
    in_order = np.bincount(index, weights=rank * true) - positives * (positives + 1) / 2
    auc = float(in_order.sum() / (positives * negatives).sum())
    middle = np.bincount(index, weights=scores) / np.bincount(index)
    return AttackScore(auc, detections(scores - middle[index], true), int(true.sum()))


def detections(scores: Floats, true: NDArray[np.bool_]) -> float:
    """The share of true claims above the threshold that FALSE_POSITIVES of the others exceed; ties count in part."""
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    tpr = np.append(0.0, np.cumsum(true[order])[ends] / true.sum())
    fpr = np.append(0.0, np.cumsum(~true[order])[ends] / (~true).sum())
    return float(np.interp(FALSE_POSITIVES, fpr, tpr))


def stronger(*results: AttackScore) -> AttackScore:
    """An attacker uses the attack that works best."""
    return max(results, key=lambda result: (result.true_claims > 0, result.auc))


def mean_score(first: AttackScore, second: AttackScore) -> AttackScore:
    """The mean of two attacks that could both be tried, or the one that could."""
    if not (first.true_claims and second.true_claims):
        return first if first.true_claims else second
    return AttackScore((first.auc + second.auc) / 2, (first.tpr_at_1pct_fpr + second.tpr_at_1pct_fpr) / 2,
                       first.true_claims + second.true_claims)  # fmt: skip


def _with_both(true: NDArray[np.bool_], stratum: Ints) -> NDArray[np.bool_]:
    """The claims of strata that have true and false claims."""
    index = _numbered(stratum)
    positives, counts = np.bincount(index, weights=true), np.bincount(index)
    return np.asarray(((positives > 0) & (positives < counts))[index])


def _numbered(stratum: Ints) -> Ints:
    """Strata, which are small numbers, without those that do not occur; sorting millions of claims would take long."""
    return np.asarray((np.cumsum(np.bincount(stratum) > 0) - 1)[stratum], dtype=np.int64)


def _ranks_within(scores: Floats, stratum: Ints) -> Floats:
    """The rank of each score in its stratum, from 1; equal scores share their mean rank."""
    order = np.lexsort((scores, stratum))
    ordered, group = scores[order], stratum[order]
    new_group = np.append(True, np.diff(group) != 0)
    new_run = new_group | np.append(True, np.diff(ordered) != 0)
    runs = np.flatnonzero(new_run)
    length = np.diff(np.append(runs, len(ordered)))
    begin = np.maximum.accumulate(np.where(new_group, np.arange(len(ordered)), 0))
    rank = np.repeat(runs + (length - 1) / 2, length) - begin + 1
    ranks = np.empty(len(ordered))
    ranks[order] = rank
    return ranks
