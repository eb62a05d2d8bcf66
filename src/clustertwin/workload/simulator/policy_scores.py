"""Prepare a policy for the compiled simulation: Policy + jobs -> ranks of the jobs and a compiled score function.

A policy whose scores never vary is evaluated once, over the whole log, with numpy. A policy whose scores vary is
compiled to a function pointer. The simulation loops take the pointer as an argument, so they are compiled once for all
policies and cached on disk.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int64, njit, types
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.policies.policy_contract import Now, Policy, Request
from clustertwin.workload.simulator.fair_share import usage_ratio
from clustertwin.workload.simulator.machine_state import Records, earliest_start_s

#: score(request, now, weights) -> float
SIGNATURE = float64(
    types.NamedUniTuple(float64, len(Request._fields), Request),
    types.NamedUniTuple(float64, len(Now._fields), Now),
    float64[::1],
)
SCORE_FUNCTION = types.FunctionType(SIGNATURE)


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # numba colours its messages where colorama is installed


class PolicyError(SettingsError):
    """A policy that does not compile, raises an error, or returns something other than a number."""


class PolicyArrays(NamedTuple):
    """What the simulation loops need of a policy, besides its score function."""

    rank: NDArray[np.int64]  # the position of each job in the policy's order; submission order if the scores vary
    order: NDArray[np.int64]  # order[rank[job]] == job
    weights: NDArray[np.float64]
    nan_scores: NDArray[np.int64]  # (1,), a counter


#: The numba type of `PolicyArrays` as a plain tuple.
POLICY_ARRAYS = types.Tuple((int64[::1], int64[::1], float64[::1], int64[::1]))


def prepare_policy(policy: Policy, jobs: Records, procs: int) -> tuple[PolicyArrays, Any]:
    """The arrays and the compiled score function of a policy for these jobs."""
    weighted = policy.weights is not None
    weights = np.ascontiguousarray(policy.weights if weighted else np.zeros(0), dtype=np.float64)
    nan_scores = np.zeros(1, np.int64)
    if policy.varies:
        arrays = PolicyArrays(np.arange(len(jobs)), np.arange(len(jobs)), weights, nan_scores)
        return arrays, compile_score(policy.score, weighted)
    scores = score_all(policy, jobs, procs)
    nan_scores[0] = np.isnan(scores).sum()
    order = np.argsort(np.where(np.isnan(scores), np.inf, scores), kind="stable")
    rank = np.empty(len(jobs), dtype=np.int64)
    rank[order] = np.arange(len(jobs))
    return PolicyArrays(rank, order, weights, nan_scores), compile_score(_unused_score, False)


def score_all(policy: Policy, jobs: Records, procs: int) -> NDArray[np.float64]:
    """The score of every job at its submission, on an idle machine."""
    columns: dict[str, Any] = {name: jobs[name] for name in Request._fields[:-2]}
    request = Request(**columns, usage_ratio=0.0, ready_s=jobs["submit_s"])  # type: ignore[arg-type]
    now = Now(jobs["submit_s"], float(procs), 0.0, float(procs), 0.0)  # type: ignore[arg-type]
    try:
        scores = policy.score(request, now, *(() if policy.weights is None else (policy.weights,)))
        return np.broadcast_to(np.asarray(scores, dtype=np.float64), jobs.shape)
    except Exception as error:
        raise PolicyError(f"policy {policy.name!r}: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=64)
def compile_score(score: Any, weighted: bool) -> Any:
    """Compile a score to a function that the simulation loops call by pointer. Division by zero gives infinity."""
    inner = njit(error_model="numpy")(score)
    if weighted:

        def with_weights(request, now, weights):  # type: ignore[no-untyped-def]
            return inner(request, now, weights)
    else:

        def with_weights(request, now, weights):  # type: ignore[no-untyped-def]
            return inner(request, now)

    try:
        return njit(SIGNATURE)(with_weights)
    except NumbaError as error:
        text = _COLOUR.sub("", str(error))
        reason = next(line for line in text.splitlines() if not line.startswith("Failed in"))
        raise PolicyError(
            f"policy {getattr(score, '__name__', score)!r} does not compile; a score uses arithmetic and numpy "
            f"functions on the fields of Request and Now, and returns one number ({reason})"
        ) from error


@njit
def current_moment(state):  # type: ignore[no-untyped-def]
    """The state of the machine that a policy sees."""
    return Now(
        state.now_s,
        float(state.free_procs),
        float(state.free_gpus),
        float(state.procs),
        float(state.queue_end - state.queue_start),
    )


@njit
def score_job(state, running, availability, accounts, job, score_function, weights, nan_scores):  # type: ignore[no-untyped-def]
    """The current score of a waiting job. Call `update_availability` first.

    NaN is counted and becomes infinity, so that the job goes last.
    """
    request = Request(
        job.submit_s,
        job.request_s,
        float(job.procs),
        float(job.gpus),
        float(job.user),
        float(job.group),
        float(job.queue),
        usage_ratio(accounts, job.user, state.now_s),
        earliest_start_s(state, running, availability, job),
    )
    score = score_function(request, current_moment(state), weights)
    if np.isnan(score):
        nan_scores[0] += 1
        return np.inf
    return score


def _unused_score(request: Request, now: Now) -> float:
    """Stands in for the score of a policy that is evaluated in advance; the loops need some pointer."""
    return 0.0
