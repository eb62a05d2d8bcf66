"""UNICEP of Tang et al. (CLUSTER'09): (request, now) -> score; short, small and long-waiting jobs first.

The wait is the one at the moment of the decision.
"""

from __future__ import annotations

import numpy as np

from clustertwin.workload.policies.request import Now, Request


def score(request: Request, now: Now) -> float:
    wait_s = now.time_s - request.submit_s
    # log2 of one processor is 0: serial jobs come first, and the tiny terms keep their own order.
    return -(wait_s + 1e-15) / (np.log2(request.procs + 1e-15) * np.maximum(request.request_s, 1.0))
