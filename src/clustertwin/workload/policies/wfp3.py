"""WFP3 of Tang et al. (CLUSTER'09): (request, now) -> score. Long waits count with their cube, and large jobs go first.

The wait is measured at the time of the decision.
"""

from __future__ import annotations

import numpy as np

from clustertwin.workload.policies.policy_contract import Now, Request


def score(request: Request, now: Now) -> float:
    wait_s = now.time_s - request.submit_s
    return -((wait_s / np.maximum(request.request_s, 1.0)) ** 3) * request.procs
