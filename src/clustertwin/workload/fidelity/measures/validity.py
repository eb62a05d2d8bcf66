"""Synthetic jobs checked against rules that every real job keeps -> the share of valid jobs, and the broken rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.measures.offered_load import Capacity


@dataclass(frozen=True, slots=True)
class Validity:
    share: float  # share of jobs that break no rule
    broken: dict[str, int]  # rule -> number of jobs that break it


def validity(real: ComparedLog, synthetic: ComparedLog, on: Capacity) -> Validity:
    """Apply the rules that hold for every real job to each synthetic job."""
    jobs = synthetic.jobs
    broken: dict[str, NDArray[np.bool_]] = {
        "interval below zero": synthetic.column("interval") < 0,
        "run time unknown or below zero": ~(jobs.run_s >= 0),
    }
    if not np.any(real.jobs.run_s == 0):
        broken["ran for 0 s, which no real job did"] = jobs.run_s == 0
    for name in ("nodes", "cpus", "gpus"):
        values, truth = synthetic.column(name), real.column(name)
        # A column that no synthetic job has breaks no rule. The scorecard lists the columns that both logs have.
        if np.any(truth >= 0) and np.any(values >= 0):
            broken[f"{name} not a whole number"] = values % 1 != 0
            broken[f"{name} below the log's least"] = values < truth.min()
    broken[f"larger than the machine ({on.procs} {on.unit})"] = synthetic.column(on.unit) > on.procs
    if np.all(real.jobs.request_s > 0):
        broken["no limit"] = jobs.request_s <= 0
        overrun_s = float(np.max(real.jobs.run_s - real.jobs.request_s))
        broken["ran further past its limit than any real job"] = jobs.run_s - jobs.request_s > max(overrun_s, 0.0)
    if (ratio := _cpus_per_node(real)) is not None and np.any(synthetic.column("cpus") >= 0):
        cpus, nodes = synthetic.column("cpus"), synthetic.column("nodes")
        broken["cpus do not fit the nodes"] = (cpus < nodes * ratio[0]) | (cpus > nodes * ratio[1])
    bad = np.logical_or.reduce(list(broken.values()))
    return Validity(float(1 - bad.mean()), {rule: int(mask.sum()) for rule, mask in broken.items() if mask.any()})


def _cpus_per_node(real: ComparedLog) -> tuple[float, float] | None:
    """The smallest and the largest number of cpus per node in the real log."""
    cpus, nodes = real.column("cpus"), real.column("nodes")
    if not (np.all(cpus > 0) and np.all(nodes > 0)):
        return None
    ratio = cpus / nodes
    return float(ratio.min()), float(ratio.max())
