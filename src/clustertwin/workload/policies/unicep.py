"""UNICEP of Tang et al. (CLUSTER'09): (request, now) -> score. Short, small and long-waiting jobs go first.

The wait is measured at the time of the decision.
"""

from __future__ import annotations

import numpy as np

from clustertwin.workload.policies.policy_contract import Now, Request


def score(request: Request, now: Now) -> float:
    wait_s = now.time_s - request.submit_s
    # log2 of one processor is 0, so serial jobs go first; the tiny terms keep them ordered among themselves.
    return -(wait_s + 1e-15) / (np.log2(request.procs + 1e-15) * np.maximum(request.request_s, 1.0))
