"""Admit a job log to the simulation: Jobs + machine -> job records, and a remark for every job refused or changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import Unit, job_sizes
from clustertwin.workload.simulator.machine_state import JOB, Records

#: Job records hold sizes and codes in 32 bits; a larger one would become another number.
LARGEST_MACHINE = 2**31 - 1
UNKNOWN_CODE = -1


@dataclass(frozen=True, slots=True)
class Admission:
    """The jobs that can be scheduled, and the ids of the jobs behind every remark."""

    records: Records  # of JOB, in order of submission
    admitted: NDArray[np.int64]  # the index of each record in the log
    remarks: dict[str, NDArray[np.int64]]  # remark -> job ids

    def ranges(self, of_jobs: Iterable[tuple[int, int]], jobs: int) -> tuple[tuple[int, int], ...]:
        """Ranges of the log's jobs (first, one past the last) -> the ranges of records that hold all of them.

        Jobs that were refused have no record, so later jobs have another number there.
        """
        found = []
        for first, last in of_jobs:
            wanted = np.zeros(jobs, dtype=bool)
            wanted[first:last] = True
            rows = np.flatnonzero(wanted[self.admitted])
            if len(rows):
                found.append((int(rows[0]), int(rows[-1]) + 1))
        return tuple(found)


def admit(jobs: Jobs, procs: int, gpus: int = 0, unit: Unit = "cpus", kill_at_limit: bool = False) -> Admission:
    """The records of the jobs that fit a machine of `procs` processors (or nodes). With 0 `gpus`, GPUs do not count."""
    if procs <= 0 or gpus < 0:
        raise SettingsError(f"a machine with {procs} processors and {gpus} GPUs cannot run jobs")
    if max(procs, gpus) > LARGEST_MACHINE:
        raise SettingsError(f"a machine of {max(procs, gpus):,} is too large; the limit is {LARGEST_MACHINE:,}")
    size = job_sizes(jobs, unit)
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
        raise TraceError(f"{len(jobs)} jobs", f"no job can run on {procs} processors ({reasons or 'the log is empty'})")
    over_limit = fine & limited & (jobs.run_s > jobs.request_s)
    codes_fit = (jobs.group == jobs.group.astype("i4")) & (jobs.queue == jobs.queue.astype("i4"))
    over_limit_remark = "killed at the time limit" if kill_at_limit else "ran past the time limit; reservation extended"
    changed = {
        "run time is 0 s": fine & (jobs.run_s == 0),
        "no time limit; using the run time instead": fine & ~limited,
        over_limit_remark: over_limit,
        "out of order; sorted by submission time": fine & (np.diff(jobs.submit_s, prepend=-np.inf) < 0),
        f"group or queue number beyond 32 bits; a policy sees {UNKNOWN_CODE} for both": fine & ~codes_fit,
    }
    remarks = {name: jobs.id[mask] for name, mask in (refused | changed).items() if mask.any()}
    admitted = np.flatnonzero(fine)
    # Jobs of the same second keep the order of their numbers, whatever the order of the lines.
    admitted = admitted[np.lexsort((jobs.id[admitted], jobs.submit_s[admitted]))]
    run_s = np.where(over_limit & kill_at_limit, jobs.request_s, jobs.run_s)[admitted]
    request_s = np.where(limited, jobs.request_s, jobs.run_s)[admitted]
    records = np.zeros(len(admitted), JOB)
    records["submit_s"] = jobs.submit_s[admitted]
    records["run_s"] = run_s
    records["estimate_s"] = np.maximum(np.maximum(request_s, run_s), 1.0)  # a reservation takes at least a second
    records["request_s"] = request_s
    records["procs"] = size[admitted]
    records["gpus"] = np.maximum(jobs.gpus[admitted], 0) if gpus else 0
    records["user"] = np.unique(jobs.user[admitted], return_inverse=True)[1]
    for name, codes in (("group", jobs.group), ("queue", jobs.queue)):
        records[name] = np.where(codes_fit, codes, UNKNOWN_CODE)[admitted]
    records["start_s"] = np.nan
    return Admission(records, admitted, remarks)
