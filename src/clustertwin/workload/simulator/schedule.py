"""The result of a simulation: which job started when, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.simulator.metrics import Metrics, bounded_slowdown, by_user, interval, jain, utilisation


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every job that was scheduled, in order of submission; `remarks` names those refused, and what was assumed."""

    jobs: Jobs
    start_s: NDArray[np.float64]
    run_s: NDArray[np.float64]  # as it ran: cut at the limit where jobs are killed
    size: NDArray[np.int64]  # processors or nodes
    procs: int
    policy: str
    backfill: str
    remarks: dict[str, NDArray[np.int64]]  # remark -> ids

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

    def metrics(self, bound_s: float = 10.0, trim: float = 0.0, seed: int = 0) -> Metrics:
        """The figures, without `trim` of the jobs at each end (a machine that fills, and one that empties)."""
        if not 0.0 <= trim < 0.5:
            raise SettingsError(f"trim {trim} leaves no jobs: give the part to cut at each end, 0 to 0.5")
        n = len(self)
        kept = slice(int(n * trim), n - int(n * trim))
        rng = np.random.default_rng(seed)
        slowdown = self.bounded_slowdown(bound_s)[kept]
        users = by_user(slowdown, self.jobs.user[kept])
        submit_s = self.jobs.submit_s[kept]
        # While jobs come in: the long tail after the last submission says nothing about the scheduler.
        within = (float(submit_s[0]), float(submit_s[-1]) if submit_s[-1] > submit_s[0] else float(self.end_s.max()))
        return Metrics(
            jobs=len(slowdown),
            wait_s=interval(self.wait_s[kept], rng),
            turnaround_s=interval(self.turnaround_s[kept], rng),
            bounded_slowdown=interval(slowdown, rng),
            median_wait_s=float(np.median(self.wait_s[kept])),
            p95_wait_s=float(np.quantile(self.wait_s[kept], 0.95)),
            utilisation_ratio=utilisation(self.start_s, self.end_s, self.size, self.procs, within),
            makespan_s=float(self.end_s.max() - self.jobs.submit_s.min()),
            fairness_ratio=jain(users),
            worst_user_bounded_slowdown=float(users.max()),
        )

    def as_jobs(self) -> Jobs:
        """The log as it would have been written: same jobs, simulated waits and run times."""
        machine = self.jobs.machine if self.jobs.machine.nodes else Machine(nodes=self.procs, cpus_per_node=1)
        return replace(self.jobs, wait_s=self.wait_s, run_s=self.run_s, machine=machine)
