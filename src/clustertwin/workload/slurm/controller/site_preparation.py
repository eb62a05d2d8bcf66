"""Prepare a simulation: SlurmSite + SlurmLog -> SiteArrays.

A job in several partitions has one queue entry for each, as in Slurm. Jobs that Slurm would refuse at submission get a
reason here and take no part in the simulation.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.slurm.controller.account_table import AccountTable
from clustertwin.workload.slurm.controller.job_request import RequestReader
from clustertwin.workload.slurm.controller.limit_table import LimitTable
from clustertwin.workload.slurm.controller.node_table import NodeTable
from clustertwin.workload.slurm.controller.site_arrays import (
    AFTER,
    AFTERANY,
    AFTERNOTOK,
    AFTEROK,
    BY_PARTITION,
    CANCEL,
    ENTRIES,
    FIRST_GRES,
    JOBS,
    PARTITIONS,
    REQUEUE,
    SUSPEND,
    TUNING,
    Prepared,
    Refused,
    Rows,
    SiteArrays,
    matrix,
    set_ranges,
)
from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.site.slurm_site import SlurmSite


def prepare(site: SlurmSite, log: SlurmLog, requeue_delay_s: float = 0.0, bf_phase_s: float = 0.0) -> Prepared:
    """Everything that the event loop needs; what Slurm would refuse is left out with a reason."""
    return _Preparation(site, log).finish(requeue_delay_s, bf_phase_s)


class _Preparation:
    """Gathers rows job by job."""

    def __init__(self, site: SlurmSite, log: SlurmLog) -> None:
        self.site, self.log = site, log
        self.remarks: Counter[str] = Counter()
        self.table = NodeTable(site, self.remarks)
        self.accounts = AccountTable(site, log)
        self.limits = LimitTable(site, self.accounts, self.table.tres_names, self.remarks)
        self.requests = RequestReader(site, self.table, self.accounts, self.limits)

    def finish(self, requeue_delay_s: float, bf_phase_s: float) -> Prepared:
        rows, refused, columns = [], {}, []
        for row, job in enumerate(self.log.jobs):
            try:
                columns.append(self.requests.read(job))
                rows.append(row)
            except Refused as error:
                refused[row] = str(error)
        site = self.site
        partitions = np.zeros(len(site.partitions), PARTITIONS)
        partitions["tier"] = [p.priority_tier for p in site.partitions]
        partitions["schedules"] = [p.schedules for p in site.partitions]
        partitions["preempt_mode"] = [self._mode(p.preempt_mode) for p in site.partitions]
        partitions["least_loaded"] = [p.least_loaded for p in site.partitions]
        preempts = np.zeros((len(self.limits.qos_list), len(self.limits.qos_list)), np.uint8)
        for i, qos in enumerate(self.limits.qos_list):
            for other in qos.preempt:
                if other in self.limits.qos:
                    preempts[i, self.limits.qos[other]] = 1
        width = FIRST_GRES + len(self.table.gres) + 1
        reservation_s, reservation_nodes = self.table.reservation_rows()
        shares, children = self.accounts.share_rows()
        jobs = self._jobs(columns, [self.log.jobs[row] for row in rows])
        arrays = SiteArrays(
            nodes=self.table.nodes,
            node_gres=self.table.node_gres,
            leaf_distance=self.table.leaf_distance,
            jobs=jobs,
            job_gres=matrix([column["gres"] for column in columns], len(self.table.gres), np.int64),
            job_tres=matrix([[*column["entries"][0]["tres"], 1.0] for column in columns], width, np.float64),
            entries=self._entries(columns),
            pairs=matrix([pair for c in columns for entry in c["entries"] for pair in entry["limits"]], 2, np.int64),
            limit_rows=np.array(list(self.limits.limit_rows) or [(math.inf,) * width]),
            partitions=partitions,
            partition_nodes=self.table.part_nodes,
            reservation_s=reservation_s,
            reservation_nodes=reservation_nodes,
            shares=shares,
            children=children,
            masks=np.array(self.table.mask_rows or [np.zeros(len(self.table.names), np.uint8)], np.uint8),
            links=self.links,
            submits=matrix([pair for column in columns for pair in column["submit"]], 2, np.float64),
            qos_preempts=preempts,
            qos_mode=np.array([self._mode(qos.preempt_mode) for qos in self.limits.qos_list], np.int64),
            qos_priority=np.array([qos.priority for qos in self.limits.qos_list], np.int64),
            tuning=self._tuning(requeue_delay_s, bf_phase_s),
            counters=max(len(self.limits.counters), 1),
        )
        return Prepared(arrays, np.array(rows, np.int64), refused, self.table.names, self.remarks)

    def _mode(self, text: str) -> int:
        return {"off": 0, "cancel": CANCEL, "requeue": REQUEUE, "suspend": SUSPEND}[text or self.site.preemption.mode]

    def _jobs(self, columns: list[dict[str, Any]], jobs: list[SlurmJob]) -> Rows:
        table = np.zeros(len(jobs), JOBS)
        for name in ("submit_s", "begin_s", "cancel_s", "run_s", "array", "succeeds"):
            table[name] = [getattr(job, name) for job in jobs]
        for name in ("user", "association", "qos", *BY_PARTITION):
            table[name] = [column[name] for column in columns]
        table["reservation"] = [self.table.reservations[job.reservation] if job.reservation else -1 for job in jobs]
        requeue = self.site.preemption.requeue
        table["requeue"] = [requeue if job.requeue is None else job.requeue for job in jobs]
        table["billing"] = [self.requests.billing(column) for column in columns]
        set_ranges(table, "entry", [len(column["entries"]) for column in columns])
        set_ranges(
            table, "place", [max(entry["asked"]["nodes_max"] for entry in column["entries"]) for column in columns]
        )
        set_ranges(table, "submit", [len(column["submit"]) for column in columns])
        links, counts = self._dependencies(jobs)
        set_ranges(table, "link", counts)
        self.links = matrix(links, 2, np.int64)
        return table

    def _entries(self, columns: list[dict[str, Any]]) -> Rows:
        pairs = [(j, entry) for j, column in enumerate(columns) for entry in column["entries"]]
        table = np.zeros(len(pairs), ENTRIES)
        table["job"] = [j for j, _ in pairs]
        for name in ("partition", "mask", "kind", "priority"):
            table[name] = [entry[name] for _, entry in pairs]
        for name in BY_PARTITION:
            table[name] = [entry["asked"][name] for _, entry in pairs]
        set_ranges(table, "limit", [len(entry["limits"]) for _, entry in pairs])
        return table

    def _dependencies(self, jobs: list[SlurmJob]) -> tuple[list[tuple[int, int]], list[int]]:
        by_id: dict[int, list[int]] = {}
        for j, job in enumerate(jobs):
            by_id.setdefault(job.id, []).append(j)
            if job.array and job.array != job.id:
                by_id.setdefault(job.array, []).append(j)
        names = {
            "after": AFTER,
            "afterany": AFTERANY,
            "afterok": AFTEROK,
            "afternotok": AFTERNOTOK,
            "aftercorr": AFTEROK,
        }
        links: list[tuple[int, int]] = []
        counts = []
        tasks: dict[int, int] = {}  # of each array, seen so far
        for job in jobs:
            before, task = len(links), tasks.get(job.array, 0)
            tasks[job.array] = task + 1
            for part in filter(None, re.split(r"[,?]", job.dependency)):
                kind, _, ids = part.partition(":")
                if kind not in names:
                    self.remarks[f"dependency {kind} is not modelled"] += 1
                    continue
                for word in ids.split(":"):
                    number = word.partition("+")[0].partition("_")[0]
                    others = by_id.get(int(number) if number.isdigit() else -1, [])
                    if kind == "aftercorr" and job.array and len(others) > 1:
                        others = others[task : task + 1]  # task by task
                    for other in others:
                        links.append((names[kind], other))
            counts.append(len(links) - before)
        return links, counts

    def _tuning(self, requeue_delay_s: float, bf_phase_s: float) -> Rows:
        scheduler, weights, site = self.site.scheduler, self.site.priority, self.site
        row = np.zeros(1, TUNING)
        for name in row.dtype.names or ():
            if hasattr(scheduler, name):
                row[name] = getattr(scheduler, name)
            elif hasattr(weights, name):
                row[name] = getattr(weights, name)
        for name in ("bf_interval", "sched_interval", "bf_resolution", "calc_period_s", "dampening"):
            if not row[name][0] > 0:  # with steps of 0 s the simulation would not end
                raise SettingsError(f"{name} of the site is {row[name][0]:g}; it must be more than 0")
        row["queue_depth"] = scheduler.default_queue_depth
        row["bf_node_space_size"] = scheduler.bf_node_space_size or 2 * scheduler.bf_max_job_test
        row["weight_age"] = weights.age if weights.multifactor else 0.0
        row["weight_fair_share"] = weights.fair_share if weights.multifactor else 0.0
        decays = math.isfinite(weights.half_life_s) and weights.half_life_s > 0
        row["decay_per_s"] = 1.0 - 0.693 / weights.half_life_s if decays else 1.0
        row["preempt"] = {"none": 0, "partition": 1, "qos": 2}[site.preemption.kind]
        row["youngest_first"] = site.preemption.youngest_first
        row["over_time_s"], row["requeue_delay_s"], row["bf_phase_s"] = (
            site.over_time_limit_s,
            requeue_delay_s,
            bf_phase_s,
        )
        return row
