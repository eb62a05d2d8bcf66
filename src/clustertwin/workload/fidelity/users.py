"""Two logs -> how their users behave: how many, how unequal, and how often the next job is one more of the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.workload.fidelity.sample import Sample
from clustertwin.workload.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A log's users; jobs of an unknown user count as one user's."""

    users: int
    gini: float  # 0: all submit alike, towards 1: one submits all
    top_share: float  # jobs of the busiest user
    same_user: float  # the next job is the same user's
    same_job: float  # of those, it asks for the same size and limit
    session_jobs: float  # mean number of jobs a user submits in a row


@dataclass(frozen=True, slots=True)
class Users:
    real: Behaviour
    synthetic: Behaviour
    size_by_user_gap: float  # mean difference of the busiest users' median size and run time, in factors of e


def behaviour(jobs: Jobs) -> Behaviour:
    """One log's users."""
    _, counts = np.unique(jobs.user, return_counts=True)
    again = jobs.user[1:] == jobs.user[:-1]
    alike = (jobs.nodes[1:] == jobs.nodes[:-1]) & (jobs.cpus[1:] == jobs.cpus[:-1])
    alike &= jobs.request_s[1:] == jobs.request_s[:-1]
    return Behaviour(
        len(counts), gini(counts), float(counts.max() / len(jobs)),
        float(again.mean()) if len(again) else 0.0,
        float(alike[again].mean()) if again.any() else 0.0,
        len(jobs) / (1 + int((~again).sum())),
    )  # fmt: skip


def gini(counts: np.ndarray) -> float:
    """Inequality of counts.

    >>> gini(np.array([5, 5, 5])), gini(np.array([0, 0, 9]))
    (0.0, 0.6666666666666666)
    """
    ordered = np.sort(counts)
    place = np.arange(1, len(ordered) + 1)
    return float((2 * place - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))


def users(real: Sample, synthetic: Sample, busiest: int = 10) -> Users:
    """Both logs; users are the same people only by how much they submit, so they are paired by rank."""
    return Users(behaviour(real.jobs), behaviour(synthetic.jobs), _profile_gap(real.jobs, synthetic.jobs, busiest))


def _profile_gap(real: Jobs, synthetic: Jobs, busiest: int) -> float:
    a, b = _profiles(real, busiest), _profiles(synthetic, busiest)
    n = min(len(a), len(b))
    return float(np.abs(a[:n] - b[:n]).mean()) if n else 0.0


def _profiles(jobs: Jobs, busiest: int) -> np.ndarray:
    """(user, 2) log of the median size and run time of the busiest users, busiest first."""
    who, counts = np.unique(jobs.user, return_counts=True)
    size = np.where(jobs.nodes > 0, jobs.nodes, np.maximum(jobs.cpus, 0))
    chosen = who[np.argsort(-counts, kind="stable")][:busiest]
    return np.array([[np.log1p(np.median(values[jobs.user == user])) for values in (size, np.maximum(jobs.run_s, 0))]
                     for user in chosen])  # fmt: skip
