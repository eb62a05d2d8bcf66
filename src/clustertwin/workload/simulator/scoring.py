"""Policy -> what the compiled simulators ask: a rank per job, or a pointer to a compiled score.

A score that never varies becomes one numpy call over the log. One that varies is compiled to a C function of plain
numbers; the simulators hold its pointer, so that they are compiled once for all policies and kept on disk.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import float64, njit, types
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.policies.request import Now, Policy, Request
from clustertwin.workload.simulator.machine import Records, ready_s
from clustertwin.workload.simulator.usage import share

#: The numbers of a request, those of the moment, and the weights.
SIGNATURE = float64(*[float64] * (len(Request._fields) + len(Now._fields)), float64[::1])
POINTER = types.FunctionType(SIGNATURE)


class PolicyError(SettingsError):
    """A policy that cannot be compiled, raises, or does not give a number."""


class Scorer(NamedTuple):
    """A policy ready to run: `rank` orders all jobs, or those that tie where the policy varies."""

    rank: NDArray[np.int64]
    order: NDArray[np.int64]  # order[rank[job]] == job
    pointer: Any
    weights: NDArray[np.float64]
    nonsense: int  # scores that were no number, and went last


def scorer(policy: Policy, jobs: Records, procs: int) -> Scorer:
    """How this policy orders these jobs."""
    n = len(jobs)
    weighted = policy.weights is not None
    weights = np.ascontiguousarray(policy.weights if weighted else np.zeros(0), dtype=np.float64)
    if policy.varies:
        return Scorer(np.arange(n), np.arange(n), compile_score(policy.score, weighted), weights, 0)
    score = score_all(policy, jobs, procs)
    nonsense = int(np.isnan(score).sum())
    order = np.argsort(np.where(np.isnan(score), np.inf, score), kind="stable")
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    return Scorer(rank, order, compile_score(_never_asked, False), weights, nonsense)


def score_all(policy: Policy, jobs: Records, procs: int) -> NDArray[np.float64]:
    """The score of every job at its submission, on an empty machine."""
    columns: dict[str, Any] = {name: jobs[name] for name in Request._fields[:-2]}
    request = Request(**columns, usage_ratio=0.0, ready_s=jobs["submit_s"])  # type: ignore[arg-type]
    now = Now(jobs["submit_s"], float(procs), 0.0, float(procs), 0.0)  # type: ignore[arg-type]
    try:
        score = policy.score(request, now, *(() if policy.weights is None else (policy.weights,)))
        return np.broadcast_to(np.asarray(score, dtype=np.float64), jobs.shape)
    except Exception as reason:
        raise PolicyError(f"policy {policy.name!r}: {type(reason).__name__}: {reason}") from reason


@lru_cache(maxsize=64)
def compile_score(score: Any, weighted: bool) -> Any:
    """A score as a C function of plain numbers. Division by zero gives infinity, as in numpy."""
    inner = njit(error_model="numpy")(score)
    if weighted:

        def plain(s, r, p, g, u, gr, q, us, rs, t, fp, fg, mp, w, weights):  # type: ignore[no-untyped-def]
            return inner(Request(s, r, p, g, u, gr, q, us, rs), Now(t, fp, fg, mp, w), weights)
    else:

        def plain(s, r, p, g, u, gr, q, us, rs, t, fp, fg, mp, w, weights):  # type: ignore[no-untyped-def]
            return inner(Request(s, r, p, g, u, gr, q, us, rs), Now(t, fp, fg, mp, w))

    try:
        return njit(SIGNATURE)(plain)
    except NumbaError as reason:
        why = next(line for line in str(reason).splitlines() if not line.startswith("Failed in"))
        raise PolicyError(
            f"policy {getattr(score, '__name__', score)!r} does not compile; a score is arithmetic and numpy functions "
            f"on the fields of Request and Now, and gives one number ({why})"
        ) from reason


@njit
def ask(clock, dues, room, job, procs, accounts, pointer, weights, nonsense):  # type: ignore[no-untyped-def]
    """The score of one waiting job, now, after `tabulate`; what is no number is counted and goes last."""
    score = pointer(
        job.submit_s,
        job.request_s,
        float(job.procs),
        float(job.gpus),
        float(job.user),
        float(job.group),
        float(job.queue),
        share(accounts, job.user, clock.now_s),
        ready_s(clock, dues, room, job),
        clock.now_s,
        float(clock.free),
        float(clock.free_gpus),
        float(procs),
        float(clock.last - clock.first),
        weights,
    )
    if np.isnan(score):
        nonsense[0] += 1
        return np.inf
    return score


def _never_asked(request: Request, now: Now) -> float:
    return 0.0
