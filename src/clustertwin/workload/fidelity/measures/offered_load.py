"""Offered load of two logs on one machine: submitted work over the work the machine can do in the same time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import Unit, counted_unit, machine_size


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of a machine: how many cpus or nodes it has."""

    procs: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class LoadComparison:
    real: float  # 1: as much work as the machine can do
    synthetic: float

    @property
    def ratio(self) -> float:
        return self.synthetic / self.real if self.real else 0.0


def capacity(jobs: Jobs, procs: int | None = None) -> Capacity:
    """Nodes where the log counts them, else cpus; as many as it says its machine has, else its largest job."""
    unit = counted_unit(jobs)
    return Capacity(procs or machine_size(jobs, unit), unit)


def offered_load(jobs: Jobs, on: Capacity) -> float:
    """Processor time of all jobs over the processor time available between the first and the last submission."""
    size = np.maximum(getattr(jobs, on.unit), 0)
    span_s = float(jobs.submit_s[-1] - jobs.submit_s[0])
    return float((size * np.maximum(jobs.run_s, 0)).sum() / (on.procs * span_s)) if span_s > 0 else 0.0


def load(real: ComparedLog, synthetic: ComparedLog, on: Capacity) -> LoadComparison:
    """Both logs on the same machine."""
    return LoadComparison(offered_load(real.jobs, on), offered_load(synthetic.jobs, on))
