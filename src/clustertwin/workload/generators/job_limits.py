"""Time limits of a log: job table -> the limits that users set, and which jobs reached them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.jobs import Jobs

Floats = NDArray[np.float64]


def limit_is_run_time(jobs: Jobs) -> bool:
    """Some logs give the run time as the limit; it then says nothing of its own."""
    return bool(np.mean(jobs.run_s == jobs.request_s) > 0.5)


def limits(jobs: Jobs) -> tuple[Floats, NDArray[np.bool_]]:
    """The limit of each job, and whether the job reached it; without limits -1 and False."""
    if limit_is_run_time(jobs):
        return np.full(len(jobs), -1.0), np.zeros(len(jobs), dtype=bool)
    return jobs.request_s, (jobs.request_s > 0) & (jobs.run_s >= jobs.request_s)
