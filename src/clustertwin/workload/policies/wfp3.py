"""WFP3 of Tang et al. (CLUSTER'09): (request, now) -> score; long waits weigh by their cube, large jobs gain.

The wait is the one at the moment of the decision.
"""

from __future__ import annotations

import numpy as np

from clustertwin.workload.policies.request import Now, Request


def score(request: Request, now: Now) -> float:
    wait_s = now.time_s - request.submit_s
    return -((wait_s / np.maximum(request.request_s, 1.0)) ** 3) * request.procs
