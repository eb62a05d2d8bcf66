"""Slurm's priority/multifactor, with Slurm's formulas for age, job size and fair share: (request, now) -> score.

Every user holds the same share and there is one partition and one quality of service, so those two factors are
equal for all jobs and drop out. The weights are those of the example in Slurm's documentation, age and fair share
first; a site writes its own with `multifactor(...)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clustertwin.workload.policies.request import Now, Policy, Request


def multifactor(
    age: float = 1000.0,
    fairshare: float = 10000.0,
    job_size: float = 1000.0,
    max_age_s: float = 7 * 86400.0,
    share: float = 0.05,
    name: str = "multifactor",
) -> Policy:
    """The policy for these `PriorityWeight…` values; `share` is one user's normalised share of the machine."""

    def score(request: Request, now: Now) -> Any:
        age_factor = np.minimum((now.time_s - request.submit_s) / max_age_s, 1.0)
        fairshare_factor = 2.0 ** (-request.usage_ratio / share)
        size_factor = request.procs / now.procs
        return -(age * age_factor + fairshare * fairshare_factor + job_size * size_factor)

    return Policy(name, score)


default = multifactor()
