"""Simulate a site: SlurmSite + SlurmLog -> SiteSchedule, with start times, waits and what was left out.

schedule = simulate_site(read_site(Path("etc/slurm")), read_log(Path("jobs.sacct")))
schedule.wait_s, schedule.utilisation()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.tables import ColumnTable
from clustertwin.workload.slurm.controller.site_arrays import Prepared
from clustertwin.workload.slurm.controller.site_preparation import prepare
from clustertwin.workload.slurm.joblog.job_table import SlurmLog
from clustertwin.workload.slurm.site.slurm_site import SlurmSite

Floats = NDArray[np.float64]

#: slurmctld lets a requeued job wait for its credential to expire (AuthInfo=cred_expire, 120 s), and a second more.
REQUEUE_DELAY_S = 121.0
#: What became of a job, by the numbers of the controller.
STATES = ("not submitted", "pending", "running", "ended", "suspended", "rejected", "withdrawn", "preempted")
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Waits of a group of jobs."""

    name: str
    jobs: int
    started: int
    mean_wait_s: float
    median_wait_s: float
    p95_wait_s: float


@dataclass(frozen=True, slots=True, repr=False)
class SiteSchedule(ColumnTable):
    """When each job of a log started and ended; nan: it did not. Rows are the log's."""

    site: SlurmSite
    log: SlurmLog
    start_s: Floats
    end_s: Floats
    cpus: Floats
    state: tuple[str, ...]
    restarts: NDArray[np.int64]
    nodes: tuple[tuple[str, ...], ...]
    preemptions: int
    backfilled: int
    cycles: int
    reasons: Counter[str]  # why jobs were refused, and what the model reads in a simpler way

    @property
    def submit_s(self) -> Floats:
        return np.array([job.submit_s for job in self.log.jobs])

    @property
    def wait_s(self) -> Floats:
        """Seconds from submission to the (last) start; nan for a job that did not start."""
        return self.start_s - self.submit_s

    def table(self) -> dict[str, NDArray[Any]]:
        """A row for each job: who submitted it, where and when it ran, how long it waited."""
        return {
            "id": np.array([job.id for job in self.log.jobs], np.int64),
            "user": np.array([job.user for job in self.log.jobs], np.str_),
            "partition": np.array(self.partitions(), np.str_),
            "submit_s": self.submit_s,
            "start_s": self.start_s,
            "end_s": self.end_s,
            "wait_s": self.wait_s,
            "cpus": self.cpus,
            "state": np.array(self.state, np.str_),
        }

    def caption(self) -> str:
        return f"{len(self.log):,} jobs on {self.site.name or 'a site'}: mean wait {np.nanmean(self.wait_s):,.0f} s"

    def utilisation(self) -> float:
        """Part of the site's CPU time that jobs held between the first and the last submission."""
        first_s, last_s = self.submit_s.min(), self.submit_s.max()
        if last_s <= first_s:
            return 0.0
        held_s = np.clip(self.end_s, first_s, last_s) - np.clip(self.start_s, first_s, last_s)
        return float(np.nansum(held_s * self.cpus) / (self.site.cpus * (last_s - first_s)))

    def by(self, names: list[str]) -> list[GroupFigures]:
        """Figures of the jobs that share a name, the largest group first."""
        return group_figures(names, self.wait_s)

    def partitions(self) -> list[str]:
        return [job.partitions[0] if job.partitions else self.site.default_partition for job in self.log.jobs]


def group_figures(names: list[str], wait_s: Floats) -> list[GroupFigures]:
    """Waits by name; jobs that did not start count only in `jobs`."""
    figures = []
    labels = np.array(names)
    for name, count in Counter(names).most_common():
        waits = wait_s[(labels == name) & np.isfinite(wait_s)]
        low, middle, high = (np.nan,) * 3 if not len(waits) else (waits.mean(), *np.quantile(waits, [0.5, 0.95]))
        figures.append(GroupFigures(name, count, len(waits), float(low), float(middle), float(high)))
    return figures


def simulate_site(
    site: SlurmSite,
    log: SlurmLog,
    requeue_delay_s: float = REQUEUE_DELAY_S,
    bf_phase_s: float = 0.0,
    placed: Sequence[Sequence[str]] = (),
) -> SiteSchedule:
    """Schedule a log as slurmctld would.

    `bf_phase_s` is the time of the first backfill cycle (0: one interval after the start). `requeue_delay_s` is how
    long a preempted job stays ineligible. `placed` names the nodes of the log's first jobs: they run from second 0 on.
    """
    from clustertwin.workload.slurm.controller.backfill import new_node_space
    from clustertwin.workload.slurm.controller.controller_state import BACKFILLED, CYCLES, PREEMPTIONS, new_state
    from clustertwin.workload.slurm.controller.event_loop import run_events

    prepared = prepare(site, log, requeue_delay_s, bf_phase_s)
    arrays = prepared.arrays
    state = new_state(arrays)
    _start_placed(prepared, state, placed)
    cancel_s = arrays.jobs["cancel_s"]
    cancels = np.argsort(cancel_s, kind="stable")
    run_events(arrays, state, new_node_space(arrays), cancels[np.isfinite(cancel_s[cancels])].astype(np.int64))
    n, rows = len(log), prepared.rows
    start_s, end_s, cpus = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n)
    start_s[rows], end_s[rows] = state.live["start_s"], state.live["end_s"]
    restarts = np.zeros(n, np.int64)
    restarts[rows] = state.live["restarts"]
    names: list[str] = [REFUSED] * n
    nodes: list[tuple[str, ...]] = [()] * n
    node, taken = state.place["node"], state.place["cpus"]
    whole = arrays.nodes["cores"] * arrays.nodes["threads"]
    columns = (arrays.jobs["place_from"], arrays.jobs["place_to"], arrays.jobs["exclusive"], state.live["status"])
    for row, first, last, exclusive, status in zip(rows, *(column.tolist() for column in columns), strict=True):
        names[row] = STATES[status]
        held = [i for i in node[first:last].tolist() if i >= 0]
        nodes[row] = tuple(prepared.node_names[i] for i in held)
        cpus[row] = whole[held].sum() if exclusive else taken[first : first + len(held)].sum()
    reasons = Counter(prepared.refused.values()) + prepared.remarks
    return SiteSchedule(
        site, log, start_s, end_s, cpus, tuple(names), restarts, tuple(nodes), int(state.counts[PREEMPTIONS]),
        int(state.counts[BACKFILLED]), int(state.counts[CYCLES]), reasons,
    )  # fmt: skip


def _start_placed(prepared: Prepared, state: Any, placed: Sequence[Sequence[str]]) -> None:
    """Start the first jobs of the log on the nodes that they hold, CPUs spread evenly; unknown nodes are left out."""
    from clustertwin.workload.slurm.controller.controller_state import start_job

    index = {name: i for i, name in enumerate(prepared.node_names)}
    for j, row in enumerate(prepared.rows):
        if row >= len(placed):
            break
        job = prepared.arrays.jobs[j]
        nodes = [index[name] for name in placed[row] if name in index][: int(job["place_to"] - job["place_from"])]
        for k, node in enumerate(nodes):
            cpus, more = divmod(int(job["cpus"]), len(nodes))
            state.work.room[k]["node"], state.work.room[k]["cpus"] = node, cpus + (k < more)
        if nodes:
            start_job(prepared.arrays, state, int(job["entry_from"]), 0.0, len(nodes))
