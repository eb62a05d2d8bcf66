"""Simulate: a job log + a machine + a policy -> a schedule. The one door to the compiled simulators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import Policy
from clustertwin.workload.policies import policy as find_policy
from clustertwin.workload.simulator.conservative import run_conservative
from clustertwin.workload.simulator.head import run_head
from clustertwin.workload.simulator.intake import Unit, take_in
from clustertwin.workload.simulator.machine import Records, empty
from clustertwin.workload.simulator.profile import STEP
from clustertwin.workload.simulator.schedule import Schedule
from clustertwin.workload.simulator.scoring import PolicyError, scorer
from clustertwin.workload.simulator.usage import ACCOUNT, no_usage

Backfill = Literal["none", "easy", "conservative"]


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
    """Schedule a log on an empty machine of `procs` processors (or nodes).

    `hold` says whether a job, once picked, keeps the head of the queue until it fits, or whether the policy chooses
    again at every event. Unless told, it holds without backfilling (as RLScheduler does) and not with it (as sites do).

    >>> jobs = Jobs.build(submit_s=[0, 0, 0], run_s=[10, 10, 1], request_s=[10, 10, 1], cpus=[3, 4, 1])
    >>> simulate(jobs, procs=4).start_s.tolist()
    [0.0, 10.0, 20.0]
    >>> simulate(jobs, procs=4, backfill="easy").start_s.tolist()
    [0.0, 10.0, 0.0]
    """
    chosen = find_policy(policy)
    intake = take_in(jobs, procs, gpus, unit, kill_at_limit)
    load = intake.load
    try:
        nonsense = schedule_load(load, procs, gpus, chosen, backfill, hold)[0]
    except TwinError:
        raise
    except Exception as reason:
        raise PolicyError(f"policy {chosen.name!r}: {type(reason).__name__}: {reason}") from reason
    remarks = dict(intake.remarks)
    if nonsense:
        remarks[f"policy {chosen.name!r} gave no number {nonsense} times, those jobs went last"] = np.zeros(0, np.int64)
    kept = jobs.take(intake.kept)
    return Schedule(kept, load["start_s"], load["run_s"], load["procs"], procs, chosen.name, backfill, remarks)


def schedule_load(
    load: Records, procs: int, gpus: int, policy: Policy, backfill: Backfill, hold: bool | None = None
) -> tuple[int, NDArray[np.float64]]:
    """Fill in `start_s` of a load; gives the number of nonsense scores and the first reservations, where there are."""
    ready = scorer(policy, load, procs)
    accounts = no_usage(load) if policy.varies and policy.usage else np.zeros(0, ACCOUNT)
    reserved_s = np.full(len(load), np.inf)
    common = (load, *empty(procs, gpus, len(load)), accounts, *ready[:4], procs, policy.varies)
    if backfill == "conservative":
        nonsense = run_conservative(*common, np.zeros(2 * len(load) + 3, STEP), reserved_s)
    elif backfill in ("none", "easy"):
        nonsense = run_head(*common, backfill == "easy", hold if hold is not None else backfill == "none")
    else:
        raise SettingsError(f"no backfilling {backfill!r}; there are none, easy, conservative")
    return nonsense + ready.nonsense, reserved_s
