"""Shortest job first, by the requested time: request -> time limit."""

from __future__ import annotations

from clustertwin.workload.policies.policy_contract import Now, Request


def score(request: Request, now: Now) -> float:
    return request.request_s
