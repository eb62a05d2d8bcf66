"""A site's nodes, partitions and reservations as rows, and the sets of nodes that a job may use."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np

from clustertwin.workload.slurm.controller.feature_constraint import feature_names, feature_test
from clustertwin.workload.slurm.controller.site_arrays import NODES, Bytes, Floats, Ints, Refused, Rows, matrix
from clustertwin.workload.slurm.joblog.job_table import SlurmJob
from clustertwin.workload.slurm.site.quantities import expand_hosts
from clustertwin.workload.slurm.site.slurm_site import SlurmPartition, SlurmSite


def slurm_order(name: str) -> list[Any]:
    """Slurm's order of node names: the text before a number, then the number. `n1` comes before `n-1`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


#: What of a request decides which nodes could hold it, beside its GRES.
_NARROWING = (
    "exclusive", "memory_cpu_mb", "memory_node_mb", "cpus_on_node", "tasks_on_node", "cpus_per_task", "nodes_min",
    "nodes_max", "cpus",
)  # fmt: skip

#: Characters of a job's list of nodes.
LONGEST_LIST = 10_000


class NodeTable:
    """Nodes in the order of their names, as in slurmctld."""

    def __init__(self, site: SlurmSite, remarks: Counter[str]) -> None:
        self.site, self.remarks = site, remarks
        pairs = sorted(
            ((name, group) for group in site.groups for name in group.names), key=lambda p: slurm_order(p[0])
        )
        self.names = tuple(name for name, _ in pairs)
        self.groups = [group for _, group in pairs]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.gres = sorted({gres.name for group in site.groups for gres in group.gres})
        self.tres_names = ["cpu", "mem", "node", *(f"gres/{name}" for name in self.gres)]
        self.features = {feature for group in site.groups for feature in group.features}
        self.partitions = {partition.name: i for i, partition in enumerate(site.partitions)}
        self.reservations = {reservation.name: i for i, reservation in enumerate(site.reservations)}
        self.nodes = self._nodes()
        self.part_nodes = np.zeros((len(site.partitions), len(self.names)), np.uint8)
        for p, partition in enumerate(site.partitions):
            self.part_nodes[p, [self.index[name] for name in partition.nodes]] = 1
        self._named: dict[str, frozenset[str]] = {}
        self.masks: dict[tuple[Any, ...], int] = {}
        self.mask_rows: list[Bytes] = []
        self.node_cpus = self.nodes["cores"] * self.nodes["threads"]
        self._narrowed: dict[tuple[Any, ...], int] = {}  # -1: none
        self.tres_totals = self._totals()

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
            "cpu": self.part_nodes @ self.node_cpus.astype(float),
            "mem": self.part_nodes @ self.nodes["memory_mb"],
            "node": self.part_nodes.sum(axis=1).astype(float),
        }
        for g, name in enumerate(self.gres):
            totals[f"gres/{name}"] = self.part_nodes @ self.node_gres[:, g].astype(float)
        return totals

    def mask(self, job: SlurmJob, partition: SlurmPartition) -> int:
        types = tuple(sorted((g.name, g.type) for g in job.gres if g.type))
        key = (partition.name, job.constraint, types, job.reservation, job.exclude)
        if key not in self.masks:
            row = self.part_nodes[self.partitions[partition.name]].copy()
            match = feature_test(job.constraint)
            unknown = feature_names(job.constraint) - self.features
            if unknown:
                raise Refused(f"no node has the feature {min(unknown)}")
            if "[" in job.constraint or "*" in job.constraint:
                self.remarks[f"constraint {job.constraint}: counts and alternatives are read as plain conditions"] += 1
            for i, group in enumerate(self.groups):
                has = {(gres.name, gres.type) for gres in group.gres}
                row[i] &= match(set(group.features)) and all(kind in has for kind in types)
            row[[self.index[name] for name in self.named(job.exclude) if name in self.index]] = 0
            if job.reservation:
                reservation = self.site.reservations[self.reservations[job.reservation]]
                row &= np.isin(np.arange(len(row)), [self.index[name] for name in reservation.nodes]).astype(np.uint8)
            self.masks[key] = len(self.mask_rows)
            self.mask_rows.append(row)
        return self.masks[key]

    def named(self, text: str) -> frozenset[str]:
        """The nodes of a list such as `n[1-3],n7`, as a user wrote it."""
        if text not in self._named:
            if len(text) > LONGEST_LIST:
                raise Refused("the list of a job's nodes is too long")
            try:
                self._named[text] = frozenset(expand_hosts(text))
            except ValueError as error:
                raise Refused("a job names nodes that are no list of nodes") from error
            if len(self._named[text]) > len(self.names):  # only a range of strangers; keep none of them
                self._named[text] = frozenset({text})
        return self._named[text]

    def required(self, job: SlurmJob, partition: SlurmPartition) -> int:
        """The mask of the nodes that a job must have; -1: it names none."""
        if not job.nodelist:
            return -1
        row = np.zeros(len(self.names), np.uint8)
        names = self.named(job.nodelist)
        row[[self.index[name] for name in names if name in self.index]] = 1
        part = self.part_nodes[self.partitions[partition.name]]
        if row.sum() < len(names) or (row > part).any() or names & self.named(job.exclude):
            raise Refused("a node that the job names is not one that it can have")
        key = ("required", row.tobytes())
        if key not in self.masks:
            self.masks[key] = len(self.mask_rows)
            self.mask_rows.append(row)
        return self.masks[key]

    def narrow(self, mask: int, request: dict[str, Any]) -> int:
        """The nodes of a mask that could hold the job if they were empty; slurmctld refuses a job that has too few."""
        asked = (mask, *(request[name] for name in _NARROWING), *request["gres"])
        if asked not in self._narrowed:
            self._narrowed[asked] = self._narrow(mask, request)
        if self._narrowed[asked] < 0:
            raise Refused("no nodes of the partition can ever satisfy the request")
        return self._narrowed[asked]

    def _narrow(self, mask: int, request: dict[str, Any]) -> int:
        nodes, cpus = self.nodes, self.node_cpus
        allowed = self.mask_rows[mask] == 1
        if request["memory_cpu_mb"] > 0:
            if request["exclusive"]:
                allowed &= cpus * request["memory_cpu_mb"] <= nodes["memory_mb"]
            cpus = np.minimum(cpus, (nodes["memory_mb"] // request["memory_cpu_mb"]).astype(np.int64))
        cpus = np.minimum(cpus, request["cpus_on_node"])
        fits = allowed & (cpus >= request["tasks_on_node"] * request["cpus_per_task"])
        fits &= nodes["memory_mb"] >= request["memory_node_mb"]
        fits &= (self.node_gres >= np.array(request["gres"], np.int64)).all(axis=1)
        best = np.sort(cpus[fits])[::-1][: request["nodes_max"]]
        if len(best) < request["nodes_min"] or best.sum() < request["cpus"]:
            return -1
        row = fits.astype(np.uint8)
        key = ("narrow", row.tobytes())
        if key not in self.masks:
            self.masks[key] = len(self.mask_rows)
            self.mask_rows.append(row)
        return self.masks[key]

    def reservation_rows(self) -> tuple[Floats, Bytes]:
        items = self.site.reservations
        nodes = np.zeros((len(items), len(self.names)), np.uint8)
        for i, reservation in enumerate(items):
            nodes[i, [self.index[name] for name in reservation.nodes]] = 1
        return matrix([(item.start_s, item.end_s) for item in items], 2, np.float64), nodes
