"""Every attack on a published log, next to the same attack on real jobs of other people.

The hold-out is a real log in which the attacked people do not occur: the users are divided into two halves, and the
jobs of one half are "published" while the attack asks about the other. A log with fewer than four users is divided by
days. What an attack reaches there is habit, not a leak: everybody works on Mondays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.privacy.attack_score import AttackResult, AttackScore, mean_score
from clustertwin.workload.privacy.attacked_log import AttackedLog, attacked
from clustertwin.workload.privacy.job_attack import (
    NearCopies,
    ShiftedCopies,
    job_attack,
    near_copies,
    published_job_attack,
    shifted_copies,
    undo_shift,
)
from clustertwin.workload.privacy.name_linkage import link, names_published
from clustertwin.workload.privacy.user_day_attack import busiest, user_day_attack

LEAST_USERS = 4
#: The attacks that have a score, as named in `Attacks`.
RESULTS = ("user_days", "single_jobs", "nearest_jobs", "user_names", "project_names", "shifted_jobs")


@dataclass(frozen=True, slots=True)
class Attacks:
    """The results. 0.5 is chance for an AUC; compare it with the hold-out."""

    user_days: AttackResult
    single_jobs: AttackResult
    nearest_jobs: AttackResult
    user_names: AttackResult
    project_names: AttackResult
    shifted_jobs: AttackResult  # single jobs, after the most suspicious shift by whole weeks was undone
    near_copies: NearCopies
    near_copies_holdout: NearCopies
    shifted_copies: ShiftedCopies
    names_published: float  # share of the real names of users and projects


def attack(real: Jobs, synthetic: Jobs, seed: int = 0, unseen: Jobs | None = None) -> Attacks:
    """All attacks. `unseen`: real jobs that the generator was not fitted to; they are the false claims then."""
    truth, published, *more = attacked(real, synthetic, *([unseen] if unseen is not None and len(unseen) else []))
    strangers = more[0] if more else None
    people, others = _halves(truth)
    asked, without = truth.take(people), truth.take(others)
    rngs = np.random.default_rng(seed).spawn(10)
    copies = shifted_copies(truth, published, rngs[0])
    undone = undo_shift(published, copies.weeks)
    early = truth.at_s < np.median(truth.at_s)
    return Attacks(
        AttackResult(user_day_attack(truth, published), user_day_attack(asked, without, busiest(asked.user))),
        AttackResult(job_attack(truth, published, rngs[1], strangers), job_attack(asked, without, rngs[2])),
        AttackResult(published_job_attack(truth, published, rngs[3]), published_job_attack(asked, without, rngs[4])),
        AttackResult(link(truth, published), link(truth.take(early), truth.take(~early))),
        AttackResult(link(truth, published, "project"), link(truth.take(early), truth.take(~early), "project")),
        AttackResult(job_attack(truth, undone, rngs[5], strangers), _shifted_holdout(asked, without, rngs[6])),
        near_copies(truth, published, rngs[7]),
        near_copies(asked, without, rngs[8]),
        copies,
        names_published(real, synthetic),
    )


def averaged(first: Attacks, second: Attacks) -> Attacks:
    """Two models, each attacked with the other's people as false claims.

    Jobs of one half may be more ordinary than those of the other, which looks like a leak in one direction and like the
    opposite in the other direction. The mean has neither.
    """
    means = {
        name: AttackResult(*(mean_score(getattr(getattr(first, name), log), getattr(getattr(second, name), log))
                             for log in ("synthetic", "holdout")))
        for name in RESULTS
    }  # fmt: skip
    copies = max(first.shifted_copies, second.shifted_copies, key=lambda found: found.share)
    near = [
        NearCopies((a.share + b.share) / 2, (a.share_shifted + b.share_shifted) / 2,
                   (a.share_same_user + b.share_same_user) / 2)
        for a, b in ((first.near_copies, second.near_copies), (first.near_copies_holdout, second.near_copies_holdout))
    ]  # fmt: skip
    published = max(first.names_published, second.names_published)
    return Attacks(**means, near_copies=near[0], near_copies_holdout=near[1], shifted_copies=copies,
                   names_published=published)  # fmt: skip


def _shifted_holdout(asked: AttackedLog, without: AttackedLog, rng: np.random.Generator) -> AttackScore:
    return job_attack(asked, undo_shift(without, shifted_copies(asked, without, rng).weeks), rng)


def _halves(log: AttackedLog) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Two masks: every second user in the order of their jobs, or every second day if there are too few users."""
    codes, counts = np.unique(log.user, return_counts=True)
    if len(codes) >= LEAST_USERS:
        ordered = codes[np.argsort(-counts, kind="stable")]
        first = np.isin(log.user, ordered[::2])
    else:
        first = (log.day - log.day.min()) % 2 == 0
    # A log of one day cannot be divided: then half of its jobs stand for the other half.
    if first.all() or not first.any():
        first = np.arange(len(log)) % 2 == 0
    return first, ~first
