"""First come, first served: request -> submission time."""

from __future__ import annotations

from clustertwin.workload.policies.policy_contract import Now, Request


def score(request: Request, now: Now) -> float:
    return request.submit_s
