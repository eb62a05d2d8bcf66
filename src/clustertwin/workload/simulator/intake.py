"""Take a job log in: Jobs + machine -> the columns the simulator needs, and what was refused or assumed, job by job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.machine import JOB, Records

Unit = Literal["cpus", "nodes"]


@dataclass(frozen=True, slots=True)
class Intake:
    """The jobs that can be scheduled (`kept` indexes the log), and the ids behind every remark."""

    load: Records  # of JOB, in order of submission
    kept: NDArray[np.int64]
    remarks: dict[str, NDArray[np.int64]]


def take_in(jobs: Jobs, procs: int, gpus: int = 0, unit: Unit = "cpus", kill_at_limit: bool = False) -> Intake:
    """The load of this log on a machine of `procs` processors (or nodes); 0 gpus leaves GPUs out of the question."""
    if procs <= 0 or gpus < 0:
        raise SettingsError(f"a machine of {procs} processors and {gpus} GPUs cannot run anything")
    size = sizes(jobs, unit)
    limited = jobs.request_s > 0
    refused = {
        "refused, no submission time": ~np.isfinite(jobs.submit_s),
        "refused, run time unknown or negative": ~(np.isfinite(jobs.run_s) & (jobs.run_s >= 0)),
        "refused, no size": size <= 0,
        "refused, larger than the machine": (size > procs) | ((gpus > 0) & (jobs.gpus > gpus)),
    }
    fine = ~np.logical_or.reduce(list(refused.values()))
    if not fine.any():
        reasons = ", ".join(f"{int(mask.sum())} {name}" for name, mask in refused.items() if mask.any())
        raise TraceError(f"{len(jobs)} jobs", f"none can run on {procs} processors: {reasons or 'the log is empty'}")
    over = fine & limited & (jobs.run_s > jobs.request_s)
    assumed = {
        "assumed, run time 0 s kept": fine & (jobs.run_s == 0),
        "assumed, no limit, the run time taken for it": fine & ~limited,
        "assumed, killed at the limit" if kill_at_limit else "assumed, ran past the limit, reservation extended": over,
        "assumed, out of order, sorted by submission": fine & (np.diff(jobs.submit_s, prepend=-np.inf) < 0),
    }
    remarks = {name: jobs.id[mask] for name, mask in (refused | assumed).items() if mask.any()}
    kept = np.flatnonzero(fine)
    kept = kept[np.argsort(jobs.submit_s[kept], kind="stable")]
    run_s = np.where(over & kill_at_limit, jobs.request_s, jobs.run_s)[kept]
    request_s = np.where(limited, jobs.request_s, jobs.run_s)[kept]
    load = np.zeros(len(kept), JOB)
    load["submit_s"] = jobs.submit_s[kept]
    load["run_s"] = run_s
    load["estimate_s"] = np.maximum(np.maximum(request_s, run_s), 1.0)  # nobody reserves less than a second
    load["request_s"] = request_s
    load["procs"] = size[kept]
    load["gpus"] = np.maximum(jobs.gpus[kept], 0) if gpus else 0
    load["user"] = np.unique(jobs.user[kept], return_inverse=True)[1]
    load["group"], load["queue"] = jobs.group[kept], jobs.queue[kept]
    load["start_s"] = np.nan
    return Intake(load, kept, remarks)


def sizes(jobs: Jobs, unit: Unit) -> NDArray[np.int64]:
    """How much of the machine each job takes: its cpus where known, else its nodes (and the other way round)."""
    if unit not in ("cpus", "nodes"):
        raise SettingsError(f"a job is counted in cpus or nodes, not in {unit!r}")
    first, second = (jobs.cpus, jobs.nodes) if unit == "cpus" else (jobs.nodes, jobs.cpus)
    return np.where(first > 0, first, second)


def machine_size(jobs: Jobs, unit: Unit) -> int:
    """The size of the machine a log says it comes from."""
    machine = jobs.machine
    size = machine.nodes if unit == "nodes" else machine.cpus or machine.nodes
    if size <= 0:
        largest = int(sizes(jobs, unit).max(initial=0))
        raise SettingsError(
            f"the log does not say how large its machine is: give --procs (its largest job takes {largest:,} {unit})"
        )
    return size
