"""Evaluate policies: policies × job sequences -> mean bounded slowdowns, on all cores.

The compiled simulation releases the interpreter lock, so threads are enough.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.policies import Policy
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.scheduling_metrics import bounded_slowdown
from clustertwin.workload.simulator.simulate_log import SchedulingRules, schedule_records


def mean_slowdown(policy: Policy, sequence: Records, rules: SchedulingRules) -> float:
    """The mean bounded slowdown of one sequence under one policy."""
    records = sequence.copy()
    schedule_records(records, policy, rules)
    return float(bounded_slowdown(records["start_s"] - records["submit_s"], records["run_s"], rules.bound_s).mean())


def mean_slowdowns(
    policies: Sequence[Policy], sequences: Sequence[Records], rules: SchedulingRules, threads: int | None = None
) -> NDArray[np.float64]:
    """The mean bounded slowdowns, (policy, sequence). By default one thread for each core."""
    pairs = [(policy, sequence) for policy in policies for sequence in sequences]
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as executor:
        values = list(executor.map(lambda pair: mean_slowdown(pair[0], pair[1], rules), pairs))
    return np.array(values).reshape(len(policies), len(sequences))
