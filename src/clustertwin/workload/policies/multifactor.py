"""Slurm's priority/multifactor: (request, now) -> score, with Slurm's formulas for age, job size and fair share.

All users have the same share. There is one partition and one quality of service, so these two factors are equal for
all jobs and are left out. The default weights are those of the example in Slurm's documentation. For the weights of
your site, call `multifactor(...)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clustertwin.workload.policies.policy_contract import Now, Policy, Request


def multifactor(
    age: float = 1000.0,
    fairshare: float = 10000.0,
    job_size: float = 1000.0,
    max_age_s: float = 7 * 86400.0,
    share: float = 0.05,
    name: str = "multifactor",
) -> Policy:
    """The policy with these `PriorityWeight…` values. `share` is the normalised share of each user."""

    def score(request: Request, now: Now) -> Any:
        age_factor = np.minimum((now.time_s - request.submit_s) / max_age_s, 1.0)
        fairshare_factor = 2.0 ** (-request.usage_ratio / share)
        size_factor = request.procs / now.procs
        return -(age * age_factor + fairshare * fairshare_factor + job_size * size_factor)

    return Policy(name, score)


default = multifactor()
