"""A log -> the jobs that can be simulated and learnt from, and the rest by the reason it was left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Cleaned:
    jobs: Jobs
    removed: dict[str, NDArray[np.int64]]  # reason -> ids; a job counts under its first reason


def clean(jobs: Jobs) -> Cleaned:
    """Leave out jobs that never ran, still run, have no size, or do not fit the machine the log itself names."""
    size_known = (jobs.cpus > 0) | (jobs.nodes > 0)
    machine = jobs.machine
    too_large = (machine.nodes > 0) & (jobs.nodes > machine.nodes)
    too_large |= (machine.cpus > 0) & (jobs.cpus > machine.cpus)
    reasons = {
        "run time unknown (it still ran, or waited)": jobs.run_s < 0,
        "never ran (run time 0)": jobs.run_s == 0,
        "no size": ~size_known,
        "larger than the machine": too_large,
    }
    left = np.ones(len(jobs), dtype=bool)
    removed = {}
    for reason, mask in reasons.items():
        if np.any(mask & left):
            removed[reason] = jobs.id[mask & left]
        left &= ~mask
    return Cleaned(jobs.take(left), removed)
