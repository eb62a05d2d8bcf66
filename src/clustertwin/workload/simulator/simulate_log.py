"""Simulate a job log: Jobs + machine + policy -> Schedule. The entry point to the compiled simulation loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import Unit
from clustertwin.workload.policies import Policy, find_policy
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.availability_profile import STEP
from clustertwin.workload.simulator.conservative_backfilling import run_conservative
from clustertwin.workload.simulator.easy_backfilling import run_head_first
from clustertwin.workload.simulator.fair_share import new_accounts, no_accounts
from clustertwin.workload.simulator.machine_state import Records, idle_machine
from clustertwin.workload.simulator.policy_scores import PolicyError, prepare_policy
from clustertwin.workload.simulator.schedule import Schedule

Backfill = Literal["none", "easy", "conservative"]


@dataclass(frozen=True, slots=True)
class SchedulingRules:
    """The machine and how it is scheduled. The names of the fields are part of the checkpoint format."""

    procs: int
    gpus: int = 0
    backfill: Backfill = "none"
    hold: bool | None = None
    bound_s: float = 10.0  # of the bounded slowdown


class ScheduledRecords(NamedTuple):
    nan_scores: int  # how often the policy returned NaN
    first_reserved_s: NDArray[np.float64]  # the first reservation of each job; infinity without one


def simulate(
    jobs: Jobs,
    procs: int,
    policy: str | Policy | Callable[..., Any] = "fcfs",
    backfill: Backfill = "none",
    *,
    gpus: int = 0,
    unit: Unit = "cpus",
    kill_at_limit: bool = False,
    hold: bool | None = None,
) -> Schedule:
    """Schedule a log on an idle machine of `procs` processors (or nodes).

    With `hold`, a job that the policy has selected keeps the head of the queue until it fits. Without, the policy
    selects again at every event. The default is to hold without backfilling (RLScheduler's rule) and not to hold with
    backfilling (the rule of production schedulers).

    >>> jobs = Jobs.build(submit_s=[0, 0, 0], run_s=[10, 10, 1], request_s=[10, 10, 1], cpus=[3, 4, 1])
    >>> simulate(jobs, procs=4).start_s.tolist()
    [0.0, 10.0, 20.0]
    >>> simulate(jobs, procs=4, backfill="easy").start_s.tolist()
    [0.0, 10.0, 0.0]
    """
    resolved = find_policy(policy)
    admission = admit(jobs, procs, gpus, unit, kill_at_limit)
    records = admission.records
    try:
        scheduled = schedule_records(records, resolved, SchedulingRules(procs, gpus, backfill, hold))
    except TwinError:
        raise
    except Exception as error:
        raise PolicyError(f"policy {resolved.name!r}: {type(error).__name__}: {error}") from error
    remarks = dict(admission.remarks)
    if scheduled.nan_scores:
        remark = f"policy {resolved.name!r} returned NaN {scheduled.nan_scores} times; those jobs went last"
        remarks[remark] = np.zeros(0, np.int64)
    for phrase in resolved.trained.outside(records, procs) if resolved.trained else ():
        remarks[f"policy {resolved.name!r} was not trained for this log: {phrase}"] = np.zeros(0, np.int64)
    admitted = jobs.take(admission.admitted)
    return Schedule(
        admitted, records["start_s"], records["run_s"], records["procs"], procs, resolved.name, backfill, remarks, unit
    )


def schedule_records(records: Records, policy: Policy, rules: SchedulingRules) -> ScheduledRecords:
    """Schedule job records; sets their `start_s`."""
    if rules.backfill not in ("none", "easy", "conservative"):
        raise SettingsError(f"unknown backfilling {rules.backfill!r}; use none, easy or conservative")
    arrays, score_function = prepare_policy(policy, records, rules.procs)
    accounts = new_accounts(records) if policy.varies and policy.usage else no_accounts()
    machine = tuple(idle_machine(records, rules.procs, rules.gpus, accounts))
    first_reserved_s = np.full(len(records), np.inf)
    if rules.backfill == "conservative":
        steps = np.zeros(2 * len(records) + 3, STEP)
        run_conservative(machine, tuple(arrays), score_function, policy.varies, steps, first_reserved_s)
    else:
        hold = rules.hold if rules.hold is not None else rules.backfill == "none"
        run_head_first(machine, tuple(arrays), score_function, policy.varies, rules.backfill == "easy", hold)
    return ScheduledRecords(int(arrays.nan_scores[0]), first_reserved_s)
