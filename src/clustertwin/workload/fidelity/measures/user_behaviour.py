"""Behaviour of the users in two logs: their number, their inequality, and how often a user repeats a job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.jobs import Jobs

_BUSIEST = 10  # users of each log that are paired


@dataclass(frozen=True, slots=True)
class UserBehaviour:
    """The users of one log. Jobs of unknown users count as jobs of one user."""

    users: int
    gini: float  # 0: all users submit equally many jobs; close to 1: one user submits almost all
    top_share: float  # share of the busiest user's jobs
    same_user: float  # share of jobs that follow a job of the same user
    same_job: float  # of these, share with the same size and limit
    session_jobs: float  # mean number of consecutive jobs of one user


@dataclass(frozen=True, slots=True)
class UserComparison:
    real: UserBehaviour
    synthetic: UserBehaviour
    size_by_user_gap: float  # mean difference in log median size and log median run time of the busiest users


def behaviour(jobs: Jobs) -> UserBehaviour:
    """The behaviour of the users of one log."""
    _, counts = np.unique(jobs.user, return_counts=True)
    same_user = jobs.user[1:] == jobs.user[:-1]
    same_job = (jobs.nodes[1:] == jobs.nodes[:-1]) & (jobs.cpus[1:] == jobs.cpus[:-1])
    same_job &= jobs.request_s[1:] == jobs.request_s[:-1]
    return UserBehaviour(
        len(counts), gini(counts), float(counts.max() / len(jobs)),
        float(same_user.mean()) if len(same_user) else 0.0,
        float(same_job[same_user].mean()) if same_user.any() else 0.0,
        len(jobs) / (1 + int((~same_user).sum())),
    )  # fmt: skip


def gini(counts: np.ndarray) -> float:
    """Gini coefficient of counts.

    >>> gini(np.array([5, 5, 5])), gini(np.array([0, 0, 9]))
    (0.0, 0.6666666666666666)
    """
    ordered = np.sort(counts)
    rank = np.arange(1, len(ordered) + 1)
    return float((2 * rank - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))


def users(real: ComparedLog, synthetic: ComparedLog) -> UserComparison:
    """Compare the users of two logs. User codes may differ between the logs, so users are paired by their job count."""
    return UserComparison(behaviour(real.jobs), behaviour(synthetic.jobs), _profile_gap(real.jobs, synthetic.jobs))


def _profile_gap(real: Jobs, synthetic: Jobs) -> float:
    a, b = _profiles(real), _profiles(synthetic)
    n = min(len(a), len(b))
    return float(np.abs(a[:n] - b[:n]).mean()) if n else 0.0


def _profiles(jobs: Jobs) -> np.ndarray:
    """(user, 2) log of the median size and run time of the busiest users, busiest first."""
    codes, counts = np.unique(jobs.user, return_counts=True)
    size = np.where(jobs.nodes > 0, jobs.nodes, np.maximum(jobs.cpus, 0))
    chosen = codes[np.argsort(-counts, kind="stable")][:_BUSIEST]
    return np.array([[np.log1p(np.median(values[jobs.user == user])) for values in (size, np.maximum(jobs.run_s, 0))]
                     for user in chosen])  # fmt: skip
