"""Smallest job first: request -> its processors."""

from __future__ import annotations

from clustertwin.workload.policies.request import Now, Request


def score(request: Request, now: Now) -> float:
    return request.procs
