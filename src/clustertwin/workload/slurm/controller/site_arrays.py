"""A site and its jobs as numpy arrays, the form that the compiled loops take: SlurmSite + SlurmLog -> SiteArrays.

A job in several partitions has one queue entry for each, as in Slurm. Jobs that Slurm would refuse at submission get a
reason here and take no part in the simulation.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.site.slurm_site import (
    PARENT_SHARES,
    Association,
    Qos,
    SlurmPartition,
    SlurmSite,
    UsageLimits,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

#: Kinds of dependency.
AFTER, AFTERANY, AFTEROK, AFTERNOTOK = range(4)
#: The first TRES of a limit row; GRES follow, and the last column counts jobs.
CPU, MEMORY, NODE, FIRST_GRES = range(4)
CANCEL, REQUEUE, SUSPEND = range(1, 4)
MANY = 10**9


def _table(**kinds: str) -> np.dtype[np.void]:
    return np.dtype([(name, {"i": np.int64, "f": np.float64}[kind]) for name, kind in kinds.items()])


#: Rows are structured arrays: the compiled loops pass few arrays, and read `jobs.limit_s[j]`.
NODES = _table(cores="i", threads="i", memory_mb="f", weight="i", leaf="i", up="i")
JOBS = _table(
    submit_s="f", begin_s="f", cancel_s="f", run_s="f", limit_s="f", user="i", association="i", qos="i", nodes_min="i",
    nodes_max="i", cpus="i", cpus_per_task="i", tasks_on_node="i", cpus_on_node="i", memory_node_mb="f",
    memory_cpu_mb="f", exclusive="i", array="i", reservation="i", succeeds="i", requeue="i", billing="f",
    entry_from="i", entry_to="i", link_from="i", link_to="i", place_from="i", place_to="i", submit_from="i",
    submit_to="i",
)  # fmt: skip
#: A job in one partition; `priority` lacks age and fair share. Entries of one kind ask for the same.
ENTRIES = _table(job="i", partition="i", mask="i", kind="i", priority="f", limit_from="i", limit_to="i")
PARTITIONS = _table(tier="i", schedules="i", preempt_mode="i", least_loaded="i")
SHARES = _table(parent="i", shares="f", level_shares="f", is_user="i", uses_parent="i", child_from="i", child_to="i")
TUNING = _table(
    backfill="i", batch_sched_delay="f", sched_interval="f", queue_depth="i", defer="i", assoc_limit_stop="i",
    bf_interval="f", bf_resolution="f", bf_window="f", bf_max_job_test="i", bf_max_job_user="i", bf_max_job_part="i",
    bf_max_job_start="i", bf_max_job_array_resv="i", bf_min_age_reserve="f", bf_min_prio_reserve="f",
    bf_node_space_size="i", bf_window_linear="f", weight_age="f", max_age_s="f", weight_fair_share="f",
    decay_per_s="f", calc_period_s="f", fair_tree="i", dampening="f", accrue_always="i", increase_only="i",
    preempt="i", youngest_first="i", over_time_s="f", requeue_delay_s="f", bf_phase_s="f",
)  # fmt: skip

Rows = NDArray[np.void]


class SiteArrays(NamedTuple):
    """Nodes stand in the order of their names, as in slurmctld; the root of the account tree is association 0."""

    nodes: Rows
    node_gres: Ints  # (node, gres)
    leaf_distance: Ints  # (leaf switch, leaf switch)
    jobs: Rows
    job_gres: Ints  # (job, gres), on each node
    job_tres: Floats  # (job, tres + 1), what limits count; the last column is 1, for the job itself
    entries: Rows
    pairs: Ints  # (pair, 2): a counter that a start adds to, and the limit row that applies
    limit_rows: Floats  # (row, tres + 1)
    partitions: Rows
    partition_nodes: Bytes  # (partition, node)
    reservation_s: Floats  # (reservation, 2): start and end
    reservation_nodes: Bytes  # (reservation, node)
    shares: Rows
    children: Ints
    masks: Bytes  # (mask, node)
    links: Ints  # (link, 2): kind of dependency, other job
    submits: Floats  # (limit, 2): counter, most jobs
    qos_preempts: Bytes  # (preemptor, preempted)
    qos_mode: Ints
    tuning: Rows  # one row
    counters: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Arrays, the jobs in them (rows of the log), and why the others are left out."""

    arrays: SiteArrays
    rows: Ints
    refused: dict[int, str]  # row of the log -> reason
    node_names: tuple[str, ...]
    remarks: Counter[str] = field(default_factory=Counter)


def prepare(site: SlurmSite, log: SlurmLog, requeue_delay_s: float = 0.0, bf_phase_s: float = 0.0) -> Prepared:
    """Everything that the event loop needs; what Slurm would refuse is left out with a reason."""
    return _Preparation(site, log).finish(requeue_delay_s, bf_phase_s)


def natural(name: str) -> list[Any]:
    """A sort key that counts n2 before n10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


class _Refused(Exception):
    """Slurm refuses the job; the text is the reason."""


class _Preparation:
    """Gathers rows job by job."""

    def __init__(self, site: SlurmSite, log: SlurmLog) -> None:
        self.site, self.log = site, log
        pairs = sorted(((name, group) for group in site.groups for name in group.names), key=lambda p: natural(p[0]))
        self.names = tuple(name for name, _ in pairs)
        self.groups = [group for _, group in pairs]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.gres = sorted({gres.name for group in site.groups for gres in group.gres})
        self.partitions = {partition.name: i for i, partition in enumerate(site.partitions)}
        self.qos = {qos.name: i for i, qos in enumerate(site.qos)} or {"normal": 0}
        self.qos_list = site.qos or (Qos("normal"),)
        self.remarks: Counter[str] = Counter()
        self.nodes = self._nodes()
        self.part_nodes = np.zeros((len(site.partitions), len(self.names)), np.uint8)
        for p, partition in enumerate(site.partitions):
            self.part_nodes[p, [self.index[name] for name in partition.nodes]] = 1
        self.masks: dict[tuple[Any, ...], int] = {}
        self.mask_rows: list[Bytes] = []
        self.users: dict[str, int] = {}
        self.associations = self._association_index()
        self.counters: dict[Any, int] = {}
        self.limit_rows: dict[tuple[float, ...], int] = {}
        self.kinds: dict[tuple[Any, ...], int] = {}
        self.limit_sets: dict[Any, list[tuple[int, int]]] = {}
        self.reservations = {reservation.name: i for i, reservation in enumerate(site.reservations)}
        self.max_qos = max([qos.priority for qos in self.qos_list] + [0])
        self.max_factor = max([partition.priority_factor for partition in site.partitions] + [1])
        self.tres_totals = self._totals()

    # --- the site

    def _nodes(self) -> Rows:
        groups = self.groups
        gres = np.array(
            [[sum(g.count for g in group.gres if g.name == name) for name in self.gres] for group in groups], np.int64
        ).reshape(len(groups), len(self.gres))
        leaf, distance = self._topology()
        threads = [group.threads_per_core for group in groups]
        cores = [group.cores for group in groups]
        if self.site.unit == "cpu":
            cores, threads = [c * t for c, t in zip(cores, threads, strict=True)], [1] * len(threads)
        rows = np.zeros(len(groups), NODES)
        rows["cores"], rows["threads"], rows["leaf"] = cores, threads, leaf
        rows["memory_mb"] = [group.memory_mb for group in groups]
        rows["weight"] = [group.weight for group in groups]
        rows["up"] = [group.available for group in groups]
        self.node_gres, self.leaf_distance = gres, distance
        return rows

    def _topology(self) -> tuple[Ints, Ints]:
        leaf = np.full(len(self.names), -1, np.int64)
        leaves = [switch for switch in self.site.switches if switch.nodes]
        parent = {below: switch.name for switch in self.site.switches for below in switch.switches}
        for i, switch in enumerate(leaves):
            leaf[[self.index[name] for name in switch.nodes]] = i

        def ancestors(name: str) -> list[str]:
            chain = [name]
            while chain[-1] in parent and len(chain) < 100:
                chain.append(parent[chain[-1]])
            return chain

        if len({ancestors(switch.name)[-1] for switch in leaves}) > 1:
            self.remarks["switches without a common root; the model lets a job use all of them"] += 1
        distance = np.zeros((max(len(leaves), 1), max(len(leaves), 1)), np.int64)
        for i, one in enumerate(leaves):
            for j, other in enumerate(leaves):
                theirs = ancestors(other.name)
                shared = [k for k, name in enumerate(ancestors(one.name)) if name in theirs]
                distance[i, j] = shared[0] if shared else 99
        return leaf, distance

    def _totals(self) -> dict[str, Floats]:
        """Each partition's TRES, by which PriorityWeightTRES is normalised."""
        totals = {
            "cpu": self.part_nodes @ (self.nodes["cores"] * self.nodes["threads"]).astype(float),
            "mem": self.part_nodes @ self.nodes["memory_mb"],
            "node": self.part_nodes.sum(axis=1).astype(float),
        }
        for g, name in enumerate(self.gres):
            totals[f"gres/{name}"] = self.part_nodes @ self.node_gres[:, g].astype(float)
        return totals

    def _association_index(self) -> dict[tuple[str, str], int]:
        """(account, user) -> row; accounts and users that only the log names are added with one share."""
        rows: list[Association] = [
            entry for entry in self.site.associations if entry.account == "root" and not entry.user
        ]
        rows = rows or [Association("root", parent="")]
        accounts = {
            entry.account: entry for entry in self.site.associations if not entry.user and entry.account != "root"
        }
        placed = {"root"}
        while accounts:
            ready = [name for name, entry in accounts.items() if entry.parent in placed or entry.parent not in accounts]
            for name in ready or list(accounts):
                rows.append(accounts.pop(name))
                placed.add(name)
        rows += [entry for entry in self.site.associations if entry.user]
        known = {(entry.account, entry.user) for entry in rows}
        self.default_account: dict[str, str] = {}
        for entry in self.site.associations:
            if entry.user:
                self.default_account.setdefault(entry.user, entry.account)
        if not self.site.enforce_associations:
            for job in self.log.jobs:
                account = job.account or self.default_account.get(job.user, "root")
                if (account, "") not in known:
                    rows.append(Association(account))
                    known.add((account, ""))
                if job.user and (account, job.user) not in known:
                    rows.append(Association(account, job.user))
                    known.add((account, job.user))
            rows.sort(key=lambda entry: bool(entry.user))
        self.association_rows = rows
        return {(entry.account, entry.user): i for i, entry in enumerate(rows)}

    def _shares(self) -> tuple[Rows, Ints]:
        rows = self.association_rows
        n = len(rows)
        parent = np.zeros(n, np.int64)
        for i, entry in enumerate(rows[1:], 1):
            parent[i] = self.associations.get((entry.account if entry.user else entry.parent, ""), 0)
        parent[0] = -1
        shares = np.array([float(entry.shares) for entry in rows])
        uses_parent = np.array([entry.shares == PARENT_SHARES for entry in rows], np.uint8)
        children: list[list[int]] = [[] for _ in rows]
        for i in range(1, n):
            children[parent[i]].append(i)
        level = np.ones(n)
        for group in children:
            level[group] = sum(shares[i] for i in group if not uses_parent[i])
        counts = np.array([len(group) for group in children])
        ends = np.cumsum(counts)
        table = np.zeros(n, SHARES)
        table["parent"], table["shares"], table["level_shares"] = parent, shares, level
        table["is_user"], table["uses_parent"] = [bool(entry.user) for entry in rows], uses_parent
        table["child_from"], table["child_to"] = ends - counts, ends
        return table, np.array([i for group in children for i in group] or [0], np.int64)

    # --- jobs

    def finish(self, requeue_delay_s: float, bf_phase_s: float) -> Prepared:
        rows, refused, columns = [], {}, []
        for row, job in enumerate(self.log.jobs):
            try:
                columns.append(self._job(job))
                rows.append(row)
            except _Refused as error:
                refused[row] = str(error)
        site = self.site
        partitions = np.zeros(len(site.partitions), PARTITIONS)
        partitions["tier"] = [p.priority_tier for p in site.partitions]
        partitions["schedules"] = [p.schedules for p in site.partitions]
        partitions["preempt_mode"] = [self._mode(p.preempt_mode) for p in site.partitions]
        partitions["least_loaded"] = [p.least_loaded for p in site.partitions]
        preempts = np.zeros((len(self.qos_list), len(self.qos_list)), np.uint8)
        for i, qos in enumerate(self.qos_list):
            for other in qos.preempt:
                if other in self.qos:
                    preempts[i, self.qos[other]] = 1
        width = FIRST_GRES + len(self.gres) + 1
        reservation_s, reservation_nodes = self._reservations()
        shares, children = self._shares()
        jobs = self._jobs(columns, [self.log.jobs[row] for row in rows])
        arrays = SiteArrays(
            nodes=self.nodes,
            node_gres=self.node_gres,
            leaf_distance=self.leaf_distance,
            jobs=jobs,
            job_gres=_matrix([column["gres"] for column in columns], len(self.gres), np.int64),
            job_tres=_matrix([[*column["entries"][0]["tres"], 1.0] for column in columns], width, np.float64),
            entries=self._entries(columns),
            pairs=_matrix([pair for c in columns for entry in c["entries"] for pair in entry["limits"]], 2, np.int64),
            limit_rows=np.array(list(self.limit_rows) or [(math.inf,) * width]),
            partitions=partitions,
            partition_nodes=self.part_nodes,
            reservation_s=reservation_s,
            reservation_nodes=reservation_nodes,
            shares=shares,
            children=children,
            masks=np.array(self.mask_rows or [np.zeros(len(self.names), np.uint8)], np.uint8),
            links=self.links,
            submits=_matrix([pair for column in columns for pair in column["submit"]], 2, np.float64),
            qos_preempts=preempts,
            qos_mode=np.array([self._mode(qos.preempt_mode) for qos in self.qos_list], np.int64),
            tuning=self._tuning(requeue_delay_s, bf_phase_s),
            counters=max(len(self.counters), 1),
        )
        return Prepared(arrays, np.array(rows, np.int64), refused, self.names, self.remarks)

    def _mode(self, text: str) -> int:
        return {"off": 0, "cancel": CANCEL, "requeue": REQUEUE, "suspend": SUSPEND}[text or self.site.preemption.mode]

    def _job(self, job: SlurmJob) -> dict[str, Any]:
        site = self.site
        names = job.partitions or (site.default_partition,)
        for name in names:
            if name not in self.partitions:
                raise _Refused(f"partition {name} does not exist")
        account = job.account or self.default_account.get(job.user, "root")
        association = self.associations.get((account, job.user), self.associations.get((account, "")))
        if site.enforce_associations and (account, job.user) not in self.associations:
            raise _Refused("no association for the user and account")
        if association is None:
            raise _Refused(f"account {account} does not exist")
        qos = self._qos_of(job, association)
        if job.reservation and job.reservation not in self.reservations:
            raise _Refused(f"reservation {job.reservation} does not exist")
        user = self.users.setdefault(job.user, len(self.users))
        reasons, entries, request = [], [], None
        for name in names:
            partition = site.partitions[self.partitions[name]]
            try:
                request = self._request(job, partition)
                entries.append(self._entry(job, partition, request, (account, user, association, qos)))
            except _Refused as error:
                reasons.append(str(error))
        if not entries or request is None:
            raise _Refused(reasons[0])
        request["entries"] = entries
        partition = site.partitions[entries[0]["partition"]]
        request["submit"] = self._submit_limits(partition, (account, user, association, qos))
        request["user"], request["association"], request["qos"] = user, association, self.qos[qos]
        return request

    def _qos_of(self, job: SlurmJob, association: int) -> str:
        chain = self._chain(association)
        default = next(
            (self.association_rows[a].default_qos for a in chain if self.association_rows[a].default_qos), ""
        )
        name = job.qos or default or ("normal" if "normal" in self.qos else next(iter(self.qos)))
        if name not in self.qos:
            if self.site.qos:
                raise _Refused(f"QOS {name} does not exist")
            return next(iter(self.qos))
        if self.site.enforce_qos:
            allowed = next((self.association_rows[a].qos for a in chain if self.association_rows[a].qos), ())
            if allowed and name not in allowed:
                raise _Refused(f"QOS {name} is not allowed for the association")
        return name

    def _chain(self, association: int) -> list[int]:
        """An association and its ancestors."""
        chain = [association]
        while chain[-1] != 0 and len(chain) < 100:
            entry = self.association_rows[chain[-1]]
            chain.append(self.associations.get((entry.account if entry.user else entry.parent, ""), 0))
        return chain

    def _request(self, job: SlurmJob, partition: SlurmPartition) -> dict[str, Any]:
        site = self.site
        tasks = job.tasks or job.tasks_per_node * max(job.nodes_min, 1) or max(job.nodes_min, 1)
        cpus = max(tasks, 1) * job.cpus_per_task
        nodes_min = max(job.nodes_min, partition.min_nodes, 1)
        if job.tasks_per_node:
            nodes_min = max(nodes_min, -(-tasks // job.tasks_per_node))
        nodes_max = max(min(job.nodes_max or tasks, len(self.names)), nodes_min)
        if nodes_max > partition.max_nodes:
            if nodes_min > partition.max_nodes:
                self._partition_limit(f"more nodes than partition {partition.name} allows")
            nodes_max = int(partition.max_nodes)
        limit_s = job.limit_s
        if math.isnan(limit_s):
            limit_s = partition.max_time_s if math.isnan(partition.default_time_s) else partition.default_time_s
        limit_s = math.ceil(limit_s / 60) * 60.0 if math.isfinite(limit_s) else limit_s
        if limit_s > partition.max_time_s:
            if math.isfinite(limit_s):
                self._partition_limit(f"a longer time limit than partition {partition.name} allows")
            limit_s = partition.max_time_s
        per_cpu, per_node = job.memory_per_cpu_mb, job.memory_per_node_mb
        if math.isnan(per_cpu) and math.isnan(per_node):
            per_cpu = partition.memory_per_cpu_mb or (0 if partition.memory_per_node_mb else site.memory_per_cpu_mb)
            per_node = partition.memory_per_node_mb or site.memory_per_node_mb
            if per_cpu:
                per_node = math.nan
            elif not per_node:
                per_node = 0.0  # all memory of the node
        exclusive = job.exclusive or partition.exclusive or site.whole_nodes
        gres = [sum(g.count for g in job.gres if g.name == name) for name in self.gres]
        if any(g.name not in self.gres for g in job.gres):
            raise _Refused(f"no node has the GRES {next(g.name for g in job.gres if g.name not in self.gres)}")
        return {
            "nodes_min": nodes_min, "nodes_max": nodes_max, "cpus": max(cpus, nodes_min), "tasks": tasks,
            "cpus_per_task": job.cpus_per_task, "limit_s": min(limit_s, 365 * 86_400.0),
            "tasks_on_node": job.tasks_per_node or (tasks if nodes_max == 1 else 1),
            "cpus_on_node": int(min(job.tasks_per_node * job.cpus_per_task or MANY, partition.max_cpus_per_node, MANY)),
            "memory_node_mb": -1.0 if math.isnan(per_node) or not site.memory_counts else per_node,
            "memory_cpu_mb": 0.0 if math.isnan(per_cpu) or not site.memory_counts else per_cpu,
            "gres": gres, "exclusive": exclusive,
        }  # fmt: skip

    def _partition_limit(self, reason: str) -> None:
        raise _Refused(reason if self.site.enforce_partition_limits else f"{reason}; it waits for ever")

    def _entry(
        self, job: SlurmJob, partition: SlurmPartition, request: dict[str, Any], owner: tuple[str, int, int, str]
    ) -> dict[str, Any]:
        account, _, association, qos = owner
        if not partition.accepts:
            raise _Refused(f"partition {partition.name} does not accept jobs")
        if (partition.allow_qos and qos not in partition.allow_qos) or qos in partition.deny_qos:
            raise _Refused(f"QOS {qos} is not allowed in partition {partition.name}")
        if (partition.allow_accounts and account not in partition.allow_accounts) or account in partition.deny_accounts:
            raise _Refused(f"account {account} is not allowed in partition {partition.name}")
        mask = self._narrow(self._mask(job, partition), request)
        tres = self._tres(request, mask)
        asked = (mask, job.reservation, *(str(value) for value in request.values()))
        return {
            "kind": self.kinds.setdefault((partition.name, *asked), len(self.kinds)),
            "partition": self.partitions[partition.name], "mask": mask, "tres": tres,
            "priority": self._static_priority(job, partition, request, tres, qos),
            "limits": self._limits(job, partition, (request, tres), owner, association),
        }  # fmt: skip

    def _mask(self, job: SlurmJob, partition: SlurmPartition) -> int:
        types = tuple(sorted((g.name, g.type) for g in job.gres if g.type))
        key = (partition.name, job.constraint, types, job.reservation)
        if key not in self.masks:
            row = self.part_nodes[self.partitions[partition.name]].copy()
            match = feature_test(job.constraint)
            if "[" in job.constraint or "*" in job.constraint:
                self.remarks[f"constraint {job.constraint}: counts and alternatives are read as plain conditions"] += 1
            for i, group in enumerate(self.groups):
                has = {(gres.name, gres.type) for gres in group.gres}
                row[i] &= match(set(group.features)) and all(kind in has for kind in types)
            if job.reservation:
                reservation = self.site.reservations[self.reservations[job.reservation]]
                row &= np.isin(np.arange(len(row)), [self.index[name] for name in reservation.nodes]).astype(np.uint8)
            self.masks[key] = len(self.mask_rows)
            self.mask_rows.append(row)
        return self.masks[key]

    def _narrow(self, mask: int, request: dict[str, Any]) -> int:
        """The nodes of a mask that could hold the job if they were empty; slurmctld refuses a job that has too few."""
        nodes = self.nodes
        allowed = self.mask_rows[mask] == 1
        cpus = nodes["cores"] * nodes["threads"]
        if request["memory_cpu_mb"] > 0:
            cpus = np.minimum(cpus, (nodes["memory_mb"] // request["memory_cpu_mb"]).astype(np.int64))
        cpus = np.minimum(cpus, request["cpus_on_node"])
        fits = allowed & (cpus >= request["tasks_on_node"] * request["cpus_per_task"])
        fits &= nodes["memory_mb"] >= request["memory_node_mb"]
        fits &= (self.node_gres >= np.array(request["gres"], np.int64)).all(axis=1)
        best = np.sort(cpus[fits])[::-1][: request["nodes_max"]]
        if len(best) < request["nodes_min"] or best.sum() < request["cpus"]:
            raise _Refused("no nodes of the partition can ever satisfy the request")
        row = fits.astype(np.uint8)
        key = ("narrow", row.tobytes())
        if key not in self.masks:
            self.masks[key] = len(self.mask_rows)
            self.mask_rows.append(row)
        return self.masks[key]

    def _tres(self, request: dict[str, Any], mask: int) -> list[float]:
        """CPUs, memory, nodes and GRES that limits and fair share count."""
        cpus, nodes = float(request["cpus"]), float(request["nodes_min"])
        if request["exclusive"]:
            allowed = self.mask_rows[mask] == 1
            cpus = max(cpus, nodes * float((self.nodes["cores"] * self.nodes["threads"])[allowed].min()))
        memory = request["memory_node_mb"] * nodes if request["memory_node_mb"] > 0 else request["memory_cpu_mb"] * cpus
        return [cpus, memory, nodes, *(count * nodes for count in request["gres"])]

    def _static_priority(
        self, job: SlurmJob, partition: SlurmPartition, request: dict[str, Any], tres: list[float], qos: str
    ) -> float:
        weights, n = self.site.priority, len(self.names)
        if not weights.multifactor:
            return 0.0
        total = float((self.nodes["cores"] * self.nodes["threads"]).sum())
        if weights.size_relative_to_time:
            size = max(request["nodes_min"] * total / n, request["cpus"]) / (request["limit_s"] / 60) / total
            size = 1 - size if weights.favor_small else size
        else:
            size = (request["nodes_min"] / n + request["cpus"] / total) / 2
            size = 1 - size if weights.favor_small else size
        priority = weights.job_size * min(max(size, 0.0), 1.0)
        priority += weights.partition * partition.priority_factor / self.max_factor
        if self.max_qos:
            priority += weights.qos * self.qos_list[self.qos[qos]].priority / self.max_qos
        amounts = dict(zip(["cpu", "mem", "node", *(f"gres/{name}" for name in self.gres)], tres, strict=True))
        for name, weight in weights.tres.items():
            amount = amounts.get(name, 0.0)
            if weights.normal_tres and amount:
                amount /= self.tres_totals[name][self.partitions[partition.name]]
            priority += weight * amount
        return priority - job.nice

    def _limits(
        self,
        job: SlurmJob,
        partition: SlurmPartition,
        asked: tuple[dict[str, Any], list[float]],
        owner: tuple[str, int, int, str],
        association: int,
    ) -> list[tuple[int, int]]:
        """Counters of an entry with the limits on them, by Slurm's precedence: partition QOS, job QOS, associations."""
        account, user, _, qos = owner
        pairs: list[tuple[int, int]] = []
        if job.array and job.array_limit:
            pairs.append((self._counter(("array", job.array)), self._limit_row({}, job.array_limit)))
        if not self.site.enforce_limits:
            return pairs
        key = (partition.qos, qos, account, user, association)
        if key not in self.limit_sets:
            self.limit_sets[key] = self._precedence(partition, owner)
        self._check_job_limits(asked, partition, owner)
        return pairs + self.limit_sets[key]

    def _sources(self, partition: SlurmPartition, owner: tuple[str, int, int, str]) -> list[tuple[Any, UsageLimits]]:
        _, _, association, qos = owner
        job_qos = self.qos_list[self.qos[qos]]
        part_qos = self.qos_list[self.qos[partition.qos]] if partition.qos in self.qos else None
        both = [job_qos] if part_qos is None or part_qos is job_qos else [part_qos, job_qos]
        if "overpartqos" in {flag.lower() for flag in job_qos.flags}:
            both.reverse()
        sources: list[tuple[Any, UsageLimits]] = [(("qos", item.name), item.limits) for item in both]
        return sources + [(("association", a), self.association_rows[a].limits) for a in self._chain(association)]

    def _precedence(self, partition: SlurmPartition, owner: tuple[str, int, int, str]) -> list[tuple[int, int]]:
        account, user = owner[0], owner[1]
        pairs, decided = [], set()
        for source, limits in self._sources(partition, owner):
            scopes = [(source, limits.group_tres, limits.group_jobs, "group")]
            if source[0] == "qos":
                scopes += [
                    ((*source, "user", user), limits.max_tres_user, limits.max_jobs_user, "user"),
                    ((*source, "account", account), limits.max_tres_account, limits.max_jobs_account, "account"),
                ]
            elif self.association_rows[source[1]].user:
                scopes.append(((*source, "jobs"), {}, limits.max_jobs, "user"))
            fresh = set()
            for counter, tres, jobs, scope in scopes:
                kept = {name: amount for name, amount in tres.items() if (scope, name) not in decided}
                jobs = math.inf if (scope, "jobs") in decided else jobs
                fresh |= {(scope, name) for name in kept} | ({(scope, "jobs")} if math.isfinite(jobs) else set())
                if kept or math.isfinite(jobs):
                    pairs.append((self._counter(counter), self._limit_row(kept, jobs)))
            if source[0] == "qos":  # limits of several levels of the account tree all apply
                decided |= fresh
        return pairs

    def _submit_limits(self, partition: SlurmPartition, owner: tuple[str, int, int, str]) -> list[tuple[int, float]]:
        """Counters of jobs in the system, each with the most that it may hold."""
        if not self.site.enforce_limits:
            return []
        pairs, decided = [], set()
        for source, limits in self._sources(partition, owner):
            scopes = {"group": (source, limits.group_submit)}
            if source[0] == "qos":
                scopes["user"] = ((*source, "user", owner[1]), limits.max_submit_user)
                scopes["account"] = ((*source, "account", owner[0]), limits.max_submit_account)
            elif self.association_rows[source[1]].user:
                scopes["user"] = (source, limits.max_submit)
            for scope, (counter, limit) in scopes.items():
                if math.isfinite(limit) and scope not in decided:
                    pairs.append((self._counter((*counter, "submit", scope)), limit))
                    if source[0] == "qos":
                        decided.add(scope)
        return pairs

    def _check_job_limits(
        self, asked: tuple[dict[str, Any], list[float]], partition: SlurmPartition, owner: tuple[str, int, int, str]
    ) -> None:
        request, tres = asked
        amounts = dict(zip(["cpu", "mem", "node", *(f"gres/{name}" for name in self.gres)], tres, strict=True))
        decided: set[str] = set()
        for source, limits in self._sources(partition, owner):
            for name, most in limits.max_tres_job.items():
                if name not in decided and amounts.get(name, 0.0) > most:
                    raise _Refused(f"more {name} than {source[0]} {source[1]} allows a job; it waits for ever")
                decided.add(name)
            for name, least in limits.min_tres_job.items():
                if amounts.get(name, 0.0) < least:
                    raise _Refused(f"less {name} than {source[0]} {source[1]} asks for; it waits for ever")
            if "wall" not in decided and request["limit_s"] > limits.max_wall_s:
                raise _Refused(f"a longer time limit than {source[0]} {source[1]} allows; it waits for ever")
            if math.isfinite(limits.max_wall_s):
                decided.add("wall")

    def _counter(self, key: Any) -> int:
        return self.counters.setdefault(key, len(self.counters))

    def _limit_row(self, tres: dict[str, float], jobs: float) -> int:
        names = ["cpu", "mem", "node", *(f"gres/{name}" for name in self.gres)]
        for name in tres.keys() - set(names):
            self.remarks[f"limit on {name} is not modelled"] += 1
        row = (*(tres.get(name, math.inf) for name in names), jobs)
        return self.limit_rows.setdefault(row, len(self.limit_rows))

    # --- columns

    def _jobs(self, columns: list[dict[str, Any]], jobs: list[SlurmJob]) -> Rows:
        table = np.zeros(len(jobs), JOBS)
        for name in ("submit_s", "begin_s", "cancel_s", "run_s", "array", "succeeds"):
            table[name] = [getattr(job, name) for job in jobs]
        for name in (
            "limit_s", "user", "association", "qos", "nodes_min", "nodes_max", "cpus", "cpus_per_task",
            "tasks_on_node", "cpus_on_node", "memory_node_mb", "memory_cpu_mb", "exclusive",
        ):  # fmt: skip
            table[name] = [column[name] for column in columns]
        table["reservation"] = [self.reservations[job.reservation] if job.reservation else -1 for job in jobs]
        requeue = self.site.preemption.requeue
        table["requeue"] = [requeue if job.requeue is None else job.requeue for job in jobs]
        table["billing"] = [self._billing(column) for column in columns]
        _ranges(table, "entry", [len(column["entries"]) for column in columns])
        _ranges(table, "place", [column["nodes_max"] for column in columns])
        _ranges(table, "submit", [len(column["submit"]) for column in columns])
        links, counts = self._dependencies(jobs)
        _ranges(table, "link", counts)
        self.links = _matrix(links, 2, np.int64)
        return table

    def _entries(self, columns: list[dict[str, Any]]) -> Rows:
        pairs = [(j, entry) for j, column in enumerate(columns) for entry in column["entries"]]
        table = np.zeros(len(pairs), ENTRIES)
        table["job"] = [j for j, _ in pairs]
        for name in ("partition", "mask", "kind", "priority"):
            table[name] = [entry[name] for _, entry in pairs]
        _ranges(table, "limit", [len(entry["limits"]) for _, entry in pairs])
        return table

    def _billing(self, column: dict[str, Any]) -> float:
        entry = column["entries"][0]
        partition = self.site.partitions[entry["partition"]]
        factor = self.qos_list[column["qos"]].usage_factor
        if not partition.billing:
            return float(entry["tres"][CPU]) * factor
        names = ["cpu", "mem", "node", *(f"gres/{name}" for name in self.gres)]
        parts = [weight * amount for name, amount in zip(names, entry["tres"], strict=True)
                 if (weight := partition.billing.get(name, 0.0))]  # fmt: skip
        return float(max(parts, default=0.0) if self.site.priority.max_tres else sum(parts)) * factor

    def _dependencies(self, jobs: list[SlurmJob]) -> tuple[list[tuple[int, int]], list[int]]:
        by_id: dict[int, list[int]] = {}
        for j, job in enumerate(jobs):
            by_id.setdefault(job.id, []).append(j)
            if job.array and job.array != job.id:
                by_id.setdefault(job.array, []).append(j)
        names = {"after": AFTER, "afterany": AFTERANY, "afterok": AFTEROK, "afternotok": AFTERNOTOK}
        links: list[tuple[int, int]] = []
        counts = []
        for job in jobs:
            before = len(links)
            for part in filter(None, re.split(r"[,?]", job.dependency)):
                kind, _, ids = part.partition(":")
                if kind not in names:
                    self.remarks[f"dependency {kind} is not modelled"] += 1
                    continue
                for word in ids.split(":"):
                    number = word.partition("+")[0].partition("_")[0]
                    for other in by_id.get(int(number) if number.isdigit() else -1, []):
                        links.append((names[kind], other))
            counts.append(len(links) - before)
        return links, counts

    def _reservations(self) -> tuple[Floats, Bytes]:
        items = self.site.reservations
        nodes = np.zeros((len(items), len(self.names)), np.uint8)
        for i, reservation in enumerate(items):
            nodes[i, [self.index[name] for name in reservation.nodes]] = 1
        return _matrix([(item.start_s, item.end_s) for item in items], 2, np.float64), nodes

    def _tuning(self, requeue_delay_s: float, bf_phase_s: float) -> Rows:
        scheduler, weights, site = self.site.scheduler, self.site.priority, self.site
        row = np.zeros(1, TUNING)
        for name in row.dtype.names or ():
            if hasattr(scheduler, name):
                row[name] = getattr(scheduler, name)
            elif hasattr(weights, name):
                row[name] = getattr(weights, name)
        row["queue_depth"] = scheduler.default_queue_depth
        row["bf_node_space_size"] = scheduler.bf_node_space_size or 2 * scheduler.bf_max_job_test
        row["weight_age"] = weights.age if weights.multifactor else 0.0
        row["weight_fair_share"] = weights.fair_share if weights.multifactor else 0.0
        row["decay_per_s"] = 1.0 - 0.693 / weights.half_life_s if math.isfinite(weights.half_life_s) else 1.0
        row["preempt"] = {"none": 0, "partition": 1, "qos": 2}[site.preemption.kind]
        row["youngest_first"] = site.preemption.youngest_first
        row["over_time_s"], row["requeue_delay_s"], row["bf_phase_s"] = (
            site.over_time_limit_s,
            requeue_delay_s,
            bf_phase_s,
        )
        return row


def _matrix(rows: Any, width: int, kind: Any) -> NDArray[Any]:
    return np.array(rows, kind).reshape(len(rows), width)


def _ranges(table: Rows, name: str, counts: list[int]) -> None:
    """Consecutive ranges of these lengths, as columns `name_from` and `name_to`."""
    ends = np.cumsum(counts, dtype=np.int64) if counts else np.zeros(0, np.int64)
    table[f"{name}_to"] = ends
    table[f"{name}_from"] = ends - np.array(counts, np.int64)


def feature_test(text: str) -> Callable[[set[str]], bool]:
    """A constraint such as `ib&(v100|a100)` -> a test of a node's features.

    >>> feature_test("ib&v100")({"ib", "v100"}), feature_test("a|b")({"c"})
    (True, False)
    """
    words = re.findall(r"[\w.-]+(?:\*\d+)?|[&|,()\[\]]", text)
    at = 0

    def either() -> Callable[[set[str]], bool]:
        nonlocal at
        parts = [both()]
        while at < len(words) and words[at] == "|":
            at += 1
            parts.append(both())
        return lambda features: any(part(features) for part in parts)

    def both() -> Callable[[set[str]], bool]:
        nonlocal at
        parts = [single()]
        while at < len(words) and words[at] in "&,":
            at += 1
            parts.append(single())
        return lambda features: all(part(features) for part in parts)

    def single() -> Callable[[set[str]], bool]:
        nonlocal at
        if at >= len(words):
            return lambda features: True
        word = words[at]
        at += 1
        if word in "([":
            inside = either()
            at += 1
            return inside
        name = word.partition("*")[0]
        return lambda features: name in features

    return either() if words else (lambda features: True)
