"""Two logs on one machine -> what its scheduler would see: waits, bounded slowdowns and utilisation, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clustertwin.workload.fidelity.load import Capacity
from clustertwin.workload.fidelity.sample import Sample
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator import simulate

#: name in reports -> policy, backfilling
RULES: dict[str, tuple[str, Literal["none", "easy"]]] = {
    "FCFS": ("fcfs", "none"),
    "SJF": ("sjf", "none"),
    "EASY": ("fcfs", "easy"),
}
BOUND_S = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Means over the jobs; `refused` jobs could not run at all (larger than the machine, no size, no run time)."""

    wait_s: float
    bounded_slowdown: float
    utilisation_ratio: float
    refused: int


@dataclass(frozen=True, slots=True)
class Under:
    """One rule, both logs."""

    real: Seen
    synthetic: Seen


def seen(jobs: Jobs, on: Capacity, rule: str) -> Seen:
    """One log under one rule, from an empty machine."""
    policy, backfill = RULES[rule]
    schedule = simulate(jobs, on.procs, policy, backfill, unit=on.unit)
    figures = schedule.metrics(bound_s=BOUND_S)
    slowdown, wait = figures.bounded_slowdown.mean, figures.wait_s.mean
    return Seen(wait, slowdown, figures.utilisation_ratio, len(jobs) - len(schedule))


def scheduler(real: Sample, synthetic: Sample, on: Capacity) -> dict[str, Under]:
    """Every rule, both logs."""
    return {rule: Under(seen(real.jobs, on, rule), seen(synthetic.jobs, on, rule)) for rule in RULES}
