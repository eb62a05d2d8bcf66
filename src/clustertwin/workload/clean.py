"""A log -> the jobs that can be simulated and learnt from, and the removed jobs by reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Cleaned:
    jobs: Jobs
    removed: dict[str, NDArray[np.int64]]  # reason -> job ids; a job appears under its first reason only


def clean(jobs: Jobs) -> Cleaned:
    """Remove jobs that never ran, still run, have no size, or are larger than the machine that the log states."""
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
    kept = np.ones(len(jobs), dtype=bool)
    removed = {}
    for reason, mask in reasons.items():
        if np.any(mask & kept):
            removed[reason] = jobs.id[mask & kept]
        kept &= ~mask
    return Cleaned(jobs.take(kept), removed)
