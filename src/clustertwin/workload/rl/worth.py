"""What a policy is worth on sequences: policies × loads -> mean bounded slowdowns, on all cores.

The compiled simulators let go of the interpreter, so threads are enough.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.policies import Policy
from clustertwin.workload.simulator.machine import Records
from clustertwin.workload.simulator.metrics import bounded_slowdown
from clustertwin.workload.simulator.run import Backfill, schedule_load


@dataclass(frozen=True, slots=True)
class Rules:
    """The machine and how it is scheduled."""

    procs: int
    gpus: int = 0
    backfill: Backfill = "none"
    hold: bool | None = None
    bound_s: float = 10.0


def slowdown(policy: Policy, load: Records, rules: Rules) -> float:
    """The mean bounded slowdown of one load under one policy."""
    load = load.copy()
    schedule_load(load, rules.procs, rules.gpus, policy, rules.backfill, rules.hold)
    return float(bounded_slowdown(load["start_s"] - load["submit_s"], load["run_s"], rules.bound_s).mean())


def slowdowns(
    policies: Sequence[Policy], loads: Sequence[Records], rules: Rules, workers: int | None = None
) -> NDArray[np.float64]:
    """Mean bounded slowdowns, (policy, load)."""
    pairs = [(policy, load) for policy in policies for load in loads]
    with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as threads:
        values = list(threads.map(lambda pair: slowdown(pair[0], pair[1], rules), pairs))
    return np.array(values).reshape(len(policies), len(loads))
