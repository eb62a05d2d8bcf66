"""Two logs on one simulated machine -> mean wait, bounded slowdown and utilisation under three scheduling rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.measures.offered_load import Capacity
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator import simulate

#: rule name in reports -> policy, backfilling
RULES: dict[str, tuple[str, Literal["none", "easy"]]] = {
    "FCFS": ("fcfs", "none"),
    "SJF": ("sjf", "none"),
    "EASY": ("fcfs", "easy"),
}
BOUND_S = 10.0


@dataclass(frozen=True, slots=True)
class ScheduleMeans:
    """Means over the jobs. `refused` counts jobs that cannot run: larger than the machine, no size, no run time."""

    wait_s: float
    bounded_slowdown: float
    utilisation_ratio: float
    refused: int


@dataclass(frozen=True, slots=True)
class ScheduleComparison:
    """Both logs under one rule."""

    real: ScheduleMeans
    synthetic: ScheduleMeans


def schedule_means(jobs: Jobs, on: Capacity, rule: str) -> ScheduleMeans:
    """Simulate one log under one rule, starting with an empty machine."""
    policy, backfill = RULES[rule]
    schedule = simulate(jobs, on.procs, policy, backfill, unit=on.unit)
    metrics = schedule.metrics(bound_s=BOUND_S)
    slowdown, wait = metrics.bounded_slowdown.mean, metrics.wait_s.mean
    return ScheduleMeans(wait, slowdown, metrics.utilisation_ratio, len(jobs) - len(schedule))


def compare_schedules(real: ComparedLog, synthetic: ComparedLog, on: Capacity) -> dict[str, ScheduleComparison]:
    """Both logs under every rule."""
    return {
        rule: ScheduleComparison(schedule_means(real.jobs, on, rule), schedule_means(synthetic.jobs, on, rule))
        for rule in RULES
    }
