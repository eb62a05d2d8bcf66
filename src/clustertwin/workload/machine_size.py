"""The size of a machine and of its jobs, counted in one unit: Jobs + unit -> processors or nodes."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs

#: What a job occupies.
Unit = Literal["cpus", "nodes"]


def counted_unit(jobs: Jobs) -> Unit:
    """The unit a log counts in: nodes if any job has a node count, else CPUs."""
    return "nodes" if np.any(jobs.nodes > 0) else "cpus"


def counted_sizes(jobs: Jobs) -> NDArray[np.int64]:
    """(job,) the size of each job in the unit that the log counts in."""
    return jobs.nodes if counted_unit(jobs) == "nodes" else jobs.cpus


def job_sizes(jobs: Jobs, unit: Unit) -> NDArray[np.int64]:
    """The size of each job in this unit. A job without it is counted in the other unit.

    >>> job_sizes(Jobs.build([0, 1], [5, 5], cpus=[4, -1], nodes=[1, 2]), "cpus").tolist()
    [4, 2]
    """
    if unit not in ("cpus", "nodes"):
        raise SettingsError(f"the unit is cpus or nodes, not {unit!r}")
    first, second = (jobs.cpus, jobs.nodes) if unit == "cpus" else (jobs.nodes, jobs.cpus)
    return np.where(first > 0, first, second)


def machine_size(jobs: Jobs, unit: Unit | None = None) -> int:
    """The size of the machine that a log comes from: the stated size, but at least the largest job.

    Without a unit, the size is counted in the unit of the log.
    """
    unit = unit or counted_unit(jobs)
    return max(_stated_size(jobs, unit), _largest_job(jobs, unit), 1)


def stated_machine_size(jobs: Jobs, unit: Unit) -> int:
    """The size of the machine as its log states it. A log that states none is an error."""
    size = _stated_size(jobs, unit)
    if size <= 0:
        raise SettingsError(
            f"the log does not state the size of its machine; set it with --procs "
            f"(the largest job takes {_largest_job(jobs, unit):,} {unit})"
        )
    return size


def _stated_size(jobs: Jobs, unit: Unit) -> int:
    machine = jobs.machine
    return machine.nodes if unit == "nodes" else machine.cpus or machine.nodes


def _largest_job(jobs: Jobs, unit: Unit) -> int:
    """The largest job among those that have this unit, or among all jobs if none has it."""
    sizes = jobs.cpus if unit == "cpus" else jobs.nodes
    return int((sizes if np.any(sizes > 0) else job_sizes(jobs, unit)).max(initial=0))
