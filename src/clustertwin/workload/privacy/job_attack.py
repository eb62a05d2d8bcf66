"""Was this job in the log? Distance of a claim to the nearest published job, in time and content -> attack scores.

A claim is a job with its time. True claims are real jobs. False claims are the same jobs, moved by one to four whole
weeks (whole days in a short log), so hours and weekdays tell nothing; or jobs of users that the generator never saw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S, HOUR_S, WEEK_S
from clustertwin.core.extras import require
from clustertwin.workload.privacy.attack_score import AttackScore, score_claims, stronger
from clustertwin.workload.privacy.attacked_log import AttackedLog

Floats = NDArray[np.float64]

MOST_CLAIMS = 2_000
MOST_PUBLISHED = 200_000
RUN_TIME_SHARE = 0.1  # two run times that differ by less are near
MOST_LAGS = 26
OTHER_USER = 100.0  # the distance of a job of another user, in hours
FAR = 1e7  # no two jobs are so far apart in time and content
COPY_S = 60.0  # a copy is submitted within a minute of the original


@dataclass(frozen=True, slots=True)
class NearCopies:
    """Published jobs within an hour of a real job of the same size, limit and ±10 % run time."""

    share: float
    share_shifted: float  # the same after the published log is moved by a week (a day, if it is short): chance
    share_same_user: float  # also of the same user


@dataclass(frozen=True, slots=True)
class ShiftedCopies:
    """The whole number of weeks by which the published log repeats the real one most often."""

    weeks: int
    share: float  # published jobs that repeat a real job at this shift
    share_same_time: float  # the same without a shift


def job_attack(
    real: AttackedLog, published: AttackedLog, rng: np.random.Generator, unseen: AttackedLog | None = None
) -> AttackScore:
    """The nearer a published job, the likelier the claim. `unseen` jobs are false claims instead of moved ones."""
    claims = _sample(real, rng)
    false = _sample(unseen, rng) if unseen is not None and len(unseen) else _moved(claims, real, rng)
    if false is None:
        return AttackScore()
    published = _sample(published, rng, MOST_PUBLISHED)
    true = np.repeat([True, False], [len(claims), len(false)])
    scores = []
    for with_user in (False, True):
        near = _nearness(published, with_user)
        scores.append(score_claims(np.concatenate([near(claims), near(false)]), true))
    return stronger(*scores)


def published_job_attack(real: AttackedLog, published: AttackedLog, rng: np.random.Generator) -> AttackScore:
    """The other direction: has this published job a real original? The published log, moved, gives false claims."""
    claims = _sample(published, rng)
    false = _moved(claims, real, rng)
    if false is None:
        return AttackScore()
    near = _nearness(_sample(real, rng, MOST_PUBLISHED), with_user=False)
    true = np.repeat([True, False], [len(claims), len(false)])
    return score_claims(np.concatenate([near(claims), near(false)]), true)


def near_copies(real: AttackedLog, published: AttackedLog, rng: np.random.Generator) -> NearCopies:
    """How much of the published log is a close variation of a real job at its own time."""
    claims = _sample(published, rng)
    step_s = _step_s(real)
    shifted = replace(claims, at_s=claims.at_s + (step_s or 0.0))
    share = _near_share(real, claims, HOUR_S, RUN_TIME_SHARE)
    same_user = _near_share(real, claims, HOUR_S, RUN_TIME_SHARE, with_user=True)
    return NearCopies(share(claims), share(shifted) if step_s else 0.0, same_user(claims))


def shifted_copies(real: AttackedLog, published: AttackedLog, rng: np.random.Generator) -> ShiftedCopies:
    """Search for the shift by whole weeks at which most published jobs repeat a real one, to the minute and 1 %."""
    claims = _sample(published, rng)
    weeks = min(MOST_LAGS, int(np.ptp(real.at_s) // WEEK_S))
    share = _near_share(real, claims, COPY_S, 0.01)
    shares = {lag: share(undo_shift(claims, lag)) for lag in range(-weeks, weeks + 1)}
    best = max(shares, key=lambda lag: (shares[lag], -abs(lag)))
    return ShiftedCopies(best, shares[best], shares[0])


def undo_shift(published: AttackedLog, weeks: int) -> AttackedLog:
    """The published log, moved by whole weeks."""
    return replace(published, at_s=published.at_s + weeks * WEEK_S)


def _sample(log: AttackedLog, rng: np.random.Generator, most: int = MOST_CLAIMS) -> AttackedLog:
    return log if len(log) <= most else log.take(np.sort(rng.choice(len(log), most, replace=False)))


def _step_s(real: AttackedLog) -> float | None:
    """By how much to move a claim: weeks, days in a short log; nothing in a log of a few hours."""
    span_s = float(np.ptp(real.at_s))
    return WEEK_S if span_s >= 2 * WEEK_S else DAY_S if span_s >= 2 * DAY_S else None


def _moved(claims: AttackedLog, real: AttackedLog, rng: np.random.Generator) -> AttackedLog | None:
    """The claims, one to four steps earlier or later, within the time of the real log: elsewhere nobody worked."""
    step_s = _step_s(real)
    if step_s is None:
        return None
    begin_s = float(real.at_s.min())
    place, phase_s = np.divmod(claims.at_s - begin_s, step_s)
    # (claim,) how many weeks, or days, of the log have its hour: at least two.
    places = ((np.ptp(real.at_s) - phase_s) // step_s).astype(np.int64) + 1
    away = rng.integers(1, np.minimum(4, places - 1) + 1) * rng.choice([-1, 1], len(claims))
    return replace(claims, at_s=begin_s + (place + away) % places * step_s + phase_s)


def _nearness(published: AttackedLog, with_user: bool) -> Callable[[AttackedLog], Floats]:
    """A function that gives each claim minus its distance to the nearest published job.

    With users, a job of another user is `OTHER_USER` away, whoever that is: codes of users are names, not places.
    """
    tree = require("scipy.spatial", "models").cKDTree
    anybody = tree(_place(published))
    same_user = tree(np.column_stack([_place(published), FAR * published.user])) if with_user else None

    def near(claims: AttackedLog) -> Floats:
        distance = np.asarray(anybody.query(_place(claims))[0])
        if same_user is None:
            return -distance
        own = np.asarray(same_user.query(np.column_stack([_place(claims), FAR * claims.user]))[0])
        return -np.minimum(own, np.hypot(distance, OTHER_USER))

    return near


def _place(log: AttackedLog) -> Floats:
    """(job, 4) an hour counts as much as a tenth of the size, of the limit or of the run time."""
    amounts = [np.log1p(values) / RUN_TIME_SHARE for values in (log.size, log.limit_s, log.run_s)]
    return np.column_stack([log.at_s / HOUR_S, *amounts])


def _near_share(
    real: AttackedLog, claims: AttackedLog, within_s: float, run_share: float, with_user: bool = False
) -> Callable[[AttackedLog], float]:
    """A function that gives the share of claims with a real job of the same shape within this time and run time.

    It takes `claims`, or the same jobs at other times.
    """
    people = int(max(real.user.max(), claims.user.max())) + 2 if with_user else 0
    group = real.shape if not with_user else real.shape * people + real.user + 1
    wanted = claims.shape if not with_user else claims.shape * people + claims.user + 1
    codes = np.unique(np.concatenate([group, wanted]))

    def place(log: AttackedLog, groups: NDArray[np.int64]) -> Floats:
        # One tree for all shapes: shapes are so far apart that none is near another.
        run = np.log(np.maximum(log.run_s, 0.5)) / np.log1p(run_share)
        return np.column_stack([log.at_s / within_s, run, 1e3 * np.searchsorted(codes, groups)])

    tree = require("scipy.spatial", "models").cKDTree(place(real, group))
    return lambda moved: float(np.mean(tree.query(place(moved, wanted), p=np.inf)[0] <= 1.0))
