"""Simulate EASY backfilling with estimated run times: Jobs + machine + how to estimate -> Schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import Unit
from clustertwin.workload.run_times.run_time_history import new_history
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.fair_share import no_accounts
from clustertwin.workload.simulator.machine_state import idle_machine
from clustertwin.workload.simulator.predicted_backfilling import LAST_TWO, PREDICTED, REQUESTED, RULES, run_predicted
from clustertwin.workload.simulator.schedule import Schedule

#: The user's limits, the average of the user's last two jobs, or the average of recent similar jobs.
Estimates = Literal["requested", "last-two", "predicted"]
KINDS: dict[Estimates, int] = {"requested": REQUESTED, "last-two": LAST_TWO, "predicted": PREDICTED}


@dataclass(frozen=True, slots=True)
class EstimateSettings:
    """How run times are estimated for backfilling. The defaults were chosen on the first halves of two logs."""

    estimates: Estimates = "predicted"
    recent: int = 8  # jobs of the class that are averaged (geometric mean)
    least: int = 1  # jobs that a class needs to answer
    scale: float = 0.5  # too short costs less than too long: an estimate that is exceeded grows step by step
    shortest_first: bool = True  # backfill in the order of the estimates instead of the order of submission
    patience_s: float = 12 * 3600.0  # how far a reservation may slip before limits count again


def simulate_estimates(
    jobs: Jobs,
    procs: int,
    settings: EstimateSettings,
    *,
    gpus: int = 0,
    unit: Unit = "cpus",
    kill_at_limit: bool = False,
) -> Schedule:
    """Schedule a log first come, first served with EASY backfilling by estimates.

    >>> jobs = Jobs.build(submit_s=[0, 0, 0], run_s=[10, 10, 1], request_s=[10, 10, 1], cpus=[3, 4, 1], user=[1, 1, 1])
    >>> simulate_estimates(jobs, 4, EstimateSettings("requested")).start_s.tolist()
    [0.0, 10.0, 0.0]
    """
    if settings.estimates not in KINDS:
        raise SettingsError(f"unknown estimates {settings.estimates!r}; use {', '.join(KINDS)}")
    admission = admit(jobs, procs, gpus, unit, kill_at_limit)
    records = admission.records
    rules = np.zeros(1, RULES)
    rules["kind"], rules["recent"], rules["least"] = KINDS[settings.estimates], settings.recent, settings.least
    rules["scale"], rules["shortest"] = settings.scale, settings.shortest_first
    rules["patience_s"] = settings.patience_s
    history = new_history(records["user"], records["request_s"], records["procs"])
    machine = tuple(idle_machine(records, procs, gpus, no_accounts()))
    run_predicted(machine, tuple(history), rules, np.full(len(records), np.inf))
    name = f"fcfs, {settings.estimates} times"
    return Schedule(
        jobs.take(admission.admitted), records["start_s"], records["run_s"], records["procs"], procs, name, "easy",
        dict(admission.remarks), unit,
    )  # fmt: skip
