"""The result of a simulation: the start time of every job, and the metrics that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.tables import ColumnTable
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.machine_size import Unit
from clustertwin.workload.simulator.scheduling_metrics import (
    ScheduleMetrics,
    bounded_slowdown,
    jain_index,
    mean_by_user,
    mean_interval,
    utilisation,
)


@dataclass(frozen=True, slots=True, repr=False)
class Schedule(ColumnTable):
    """The scheduled jobs in order of submission. `remarks` lists the jobs that were refused or changed."""

    jobs: Jobs
    start_s: NDArray[np.float64]
    run_s: NDArray[np.float64]  # the simulated run time; shorter than in the log if the job was killed at its limit
    size: NDArray[np.int64]  # processors or nodes
    procs: int
    policy: str
    backfill: str
    remarks: dict[str, NDArray[np.int64]]  # remark -> job ids
    unit: Unit = "cpus"  # what `procs` counts

    def __len__(self) -> int:
        return len(self.start_s)

    @property
    def wait_s(self) -> NDArray[np.float64]:
        return self.start_s - self.jobs.submit_s

    @property
    def end_s(self) -> NDArray[np.float64]:
        return self.start_s + self.run_s

    @property
    def turnaround_s(self) -> NDArray[np.float64]:
        return self.end_s - self.jobs.submit_s

    def bounded_slowdown(self, bound_s: float = 10.0) -> NDArray[np.float64]:
        return bounded_slowdown(self.wait_s, self.run_s, bound_s)

    def metrics(self, bound_s: float = 10.0, trim: float = 0.0, seed: int = 0) -> ScheduleMetrics:
        """The metrics of the schedule. `trim` leaves out this share of the jobs at each end.

        Trimming excludes the time in which the machine fills and the time in which it drains.
        """
        if not 0.0 <= trim < 0.5:
            raise SettingsError(f"trim is a share of the jobs between 0 and 0.5, not {trim}")
        n = len(self)
        kept = slice(int(n * trim), n - int(n * trim))
        rng = np.random.default_rng(seed)
        slowdown = self.bounded_slowdown(bound_s)[kept]
        by_user = mean_by_user(slowdown, self.jobs.user[kept])
        submit_s = self.jobs.submit_s[kept]
        # Only while jobs are submitted: how the machine drains afterwards says nothing about the scheduler.
        last_s = submit_s[-1] if submit_s[-1] > submit_s[0] else self.end_s.max()
        between_s = (float(submit_s[0]), float(last_s))
        return ScheduleMetrics(
            jobs=len(slowdown),
            wait_s=mean_interval(self.wait_s[kept], rng),
            turnaround_s=mean_interval(self.turnaround_s[kept], rng),
            bounded_slowdown=mean_interval(slowdown, rng),
            median_wait_s=float(np.median(self.wait_s[kept])),
            p95_wait_s=float(np.quantile(self.wait_s[kept], 0.95)),
            utilisation_ratio=utilisation(self.start_s, self.end_s, self.size, self.procs, between_s),
            makespan_s=float(self.end_s[kept].max() - submit_s.min()),
            fairness_ratio=jain_index(by_user),
            worst_user_bounded_slowdown=float(by_user.max()),
        )

    def table(self) -> dict[str, NDArray[Any]]:
        """A row for each job: when it was submitted, started and ended, and how long it waited."""
        own = {name: getattr(self, name) for name in ("start_s", "end_s", "wait_s", "run_s", "size")}
        jobs = self.jobs
        return {"id": jobs.id, "user": jobs.user, "submit_s": jobs.submit_s, **own, "slowdown": self.bounded_slowdown()}

    def caption(self) -> str:
        mean_s = float(self.wait_s.mean()) if len(self) else 0.0
        refused = sum(len(ids) for remark, ids in self.remarks.items() if remark.startswith("refused"))
        left_out = f" ({refused:,} refused: see remarks)" if refused else ""
        return f"{len(self):,} jobs{left_out}, {self.policy}, backfilling {self.backfill}: mean wait {mean_s:,.0f} s"

    def as_jobs(self) -> Jobs:
        """The schedule as a job log: the same jobs with simulated waits and run times, on the simulated machine."""
        return replace(self.jobs, wait_s=self.wait_s, run_s=self.run_s, machine=self._machine())

    def _machine(self) -> Machine:
        """The log's machine, with the simulated size."""
        jobs, machine = self.jobs, self.jobs.machine
        each = machine.cpus_per_node
        if self.unit == "nodes":
            both = (jobs.nodes > 0) & (jobs.cpus > 0)
            most = int((-(-jobs.cpus[both] // jobs.nodes[both])).max(initial=1))  # cpus of a node
            return replace(machine, nodes=self.procs, cpus_per_node=each or most)
        if each and self.procs % each == 0:
            return replace(machine, nodes=self.procs // each)
        return replace(machine, nodes=self.procs, cpus_per_node=1)
