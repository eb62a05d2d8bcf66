"""First come, first served: request -> its submission time."""

from __future__ import annotations

from clustertwin.workload.policies.request import Now, Request


def score(request: Request, now: Now) -> float:
    return request.submit_s
