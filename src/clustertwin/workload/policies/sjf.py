"""Shortest job first, by what its user asked for: request -> its limit."""

from __future__ import annotations

from clustertwin.workload.policies.request import Now, Request


def score(request: Request, now: Now) -> float:
    return request.request_s
