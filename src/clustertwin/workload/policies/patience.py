"""Bound starvation: a policy -> the same policy, except that jobs that have waited long go first, the oldest first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clustertwin.workload.policies.policy_contract import Now, Policy, Request

#: Below every score of a policy; the submission time is added.
FIRST = -1e18


def with_patience(policy: Policy, patience_s: float) -> Policy:
    """The policy with a bound on how long others may overtake a job."""
    from numba import njit

    inner: Any = njit(error_model="numpy")(policy.score)
    if policy.weights is None:

        def score(request: Request, now: Now) -> Any:
            if now.time_s - request.submit_s > patience_s:
                return FIRST + request.submit_s * 1e6
            return inner(request, now)

        chosen: Any = score
    else:

        def weighted(request: Request, now: Now, weights: Any) -> Any:
            if now.time_s - request.submit_s > patience_s:
                return FIRST + request.submit_s * 1e6
            return inner(request, now, weights)

        chosen = weighted
    return replace(policy, name=f"{policy.name}, patience {patience_s / 3600:g} h", score=chosen, varies=True)
