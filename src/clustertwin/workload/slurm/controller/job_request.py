"""A job as slurmctld reads it: what it asks for in each partition, or why it is refused."""

from __future__ import annotations

import math
from typing import Any

from clustertwin.workload.slurm.controller.account_table import AccountTable
from clustertwin.workload.slurm.controller.limit_table import LimitTable, Owner
from clustertwin.workload.slurm.controller.node_table import NodeTable
from clustertwin.workload.slurm.controller.site_arrays import CPU, Refused, RefusedEverywhere
from clustertwin.workload.slurm.joblog.job_table import SlurmJob
from clustertwin.workload.slurm.site.slurm_site import SlurmPartition, SlurmSite

MANY = 10**9


class RequestReader:
    """Reads jobs one by one; jobs that ask for the same get the same kind."""

    def __init__(self, site: SlurmSite, table: NodeTable, accounts: AccountTable, limits: LimitTable) -> None:
        self.site, self.table, self.accounts, self.limits = site, table, accounts, limits
        self.users: dict[str, int] = {}
        self.kinds: dict[tuple[Any, ...], int] = {}
        self.max_qos = max([qos.priority for qos in limits.qos_list] + [0])
        self.cpus = float(table.node_cpus.sum())
        self.max_factor = max([partition.priority_factor for partition in site.partitions] + [1])

    def read(self, job: SlurmJob) -> dict[str, Any]:
        site = self.site
        names = job.partitions or (site.default_partition,)
        for name in names:
            if name not in self.table.partitions:
                raise Refused(f"partition {name} does not exist")
        account = job.account or self.accounts.default_account.get(job.user, "root")
        association = self.accounts.find(account, job.user, names[0])
        if site.enforce_associations and (account, job.user) not in self.accounts.index:
            raise Refused("no association for the user and account")
        if association is None:
            raise Refused(f"account {account} does not exist")
        qos = self._qos_of(job, association)
        if job.reservation and job.reservation not in self.table.reservations:
            raise Refused(f"reservation {job.reservation} does not exist")
        if job.reservation and not self._may_use(job, account):
            raise Refused(f"reservation {job.reservation} is not for the user and account")
        user = self.users.setdefault(job.user, len(self.users))
        reasons, entries, request = [], [], None
        for name in names:
            partition = site.partitions[self.table.partitions[name]]
            try:
                asked = self._request(job, partition)
                entries.append(self._entry(job, partition, asked, (account, user, association, qos)))
                request = request or dict(asked)
            except RefusedEverywhere:
                raise
            except Refused as error:
                reasons.append(str(error))
        if not entries or request is None:
            raise Refused(reasons[0])
        request["entries"] = entries
        partition = site.partitions[entries[0]["partition"]]
        request["submit"] = self.limits.submit_limits(partition, (account, user, association, qos))
        request["user"], request["association"], request["qos"] = user, association, self.limits.qos[qos]
        return request

    def _may_use(self, job: SlurmJob, account: str) -> bool:
        """Whether a job's user and account are on the reservation's lists; it must be on each list that is given."""
        reservation = self.site.reservations[self.table.reservations[job.reservation]]
        chain = self.accounts.chain(self.accounts.index.get((account, ""), 0))
        accounts = {account} | {self.accounts.rows[a].account for a in chain} - {"root"}
        return _listed(reservation.users, {job.user}) and _listed(reservation.accounts, accounts)

    def _qos_of(self, job: SlurmJob, association: int) -> str:
        chain = self.accounts.chain(association)
        default = next((self.accounts.rows[a].default_qos for a in chain if self.accounts.rows[a].default_qos), "")
        name = job.qos or default or ("normal" if "normal" in self.limits.qos else next(iter(self.limits.qos)))
        if name not in self.limits.qos:
            if self.site.qos:
                raise Refused(f"QOS {name} does not exist")
            return next(iter(self.limits.qos))
        if self.site.enforce_qos:
            allowed = next((self.accounts.rows[a].qos for a in chain if self.accounts.rows[a].qos), ())
            if allowed and name not in allowed:
                raise Refused(f"QOS {name} is not allowed for the association")
        return name

    def _request(self, job: SlurmJob, partition: SlurmPartition) -> dict[str, Any]:
        site = self.site
        tasks = job.tasks or job.tasks_per_node * max(job.nodes_min, 1) or max(job.nodes_min, 1)
        cpus = max(tasks, 1) * job.cpus_per_task
        nodes_min = max(job.nodes_min, partition.min_nodes, len(self.table.named(job.nodelist)), 1)
        if job.tasks_per_node:
            nodes_min = max(nodes_min, -(-tasks // job.tasks_per_node))
        if 0 < job.nodes_max < partition.min_nodes:
            self._partition_limit(f"fewer nodes than partition {partition.name} asks for")
        most_nodes = job.nodes_max if job.nodes_max and job.tasks_per_node else min(job.nodes_max or tasks, tasks)
        nodes_max = max(min(most_nodes, len(self.table.names)), nodes_min)
        if nodes_max > partition.max_nodes:
            if nodes_min > partition.max_nodes:
                self._partition_limit(f"more nodes than partition {partition.name} allows")
            nodes_max = int(partition.max_nodes)
        nodes_wanted = nodes_max if job.nodes_max else nodes_min  # a range gets as many nodes as it can
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
        elif job.memory_as_recorded and not self._default_memory(partition):
            memory_mb = self.table.nodes["memory_mb"][self.table.part_nodes[self.table.partitions[partition.name]] == 1]
            per_node = 0.0 if per_node in memory_mb[:1] else per_node
        cpus_asked = max(cpus, nodes_min)
        per_task, tasks_here, cpus_here = job.cpus_per_task, job.tasks_per_node, partition.max_cpus_per_node
        most_mb = partition.max_memory_per_cpu_mb or site.max_memory_per_cpu_mb
        if most_mb and per_cpu > most_mb:  # slurmctld gives a task more CPUs instead
            ratio = math.ceil(per_cpu / most_mb)
            per_task, per_cpu, cpus = per_task * ratio, math.ceil(per_cpu / ratio), cpus * ratio
        elif most_mb and per_node > most_mb:
            tasks_here = max(tasks_here, math.ceil(per_node / most_mb / per_task))
            cpus = max(cpus, nodes_min * tasks_here * per_task)
        exclusive = job.exclusive or partition.exclusive or site.whole_nodes
        gres = [sum(g.count for g in job.gres if g.name == name) if job.gres else 0 for name in self.table.gres]
        if any(g.name not in self.table.gres for g in job.gres):
            raise Refused(f"no node has the GRES {next(g.name for g in job.gres if g.name not in self.table.gres)}")
        return {
            "nodes_min": nodes_min, "nodes_max": nodes_max, "nodes_wanted": nodes_wanted,
            "cpus": max(cpus, nodes_min), "cpus_asked": cpus_asked, "tasks": tasks, "cpus_per_task": per_task,
            "limit_s": min(limit_s, 365 * 86_400.0),
            "tasks_on_node": tasks_here or (tasks if nodes_max == 1 else 1),
            "cpus_on_node": int(min(tasks_here * per_task if job.tasks_per_node else MANY, cpus_here, MANY)),
            "memory_node_mb": -1.0 if math.isnan(per_node) or not site.memory_counts else per_node,
            "memory_cpu_mb": 0.0 if math.isnan(per_cpu) or not site.memory_counts else per_cpu,
            "gres": gres, "exclusive": exclusive, "required": self.table.required(job, partition),
            "forced": partition.forces_sharing,
        }  # fmt: skip

    def _default_memory(self, partition: SlurmPartition) -> float:
        own = partition.memory_per_cpu_mb or partition.memory_per_node_mb
        return own or self.site.memory_per_cpu_mb or self.site.memory_per_node_mb

    def _partition_limit(self, reason: str) -> None:
        if self.site.enforce_every_partition:
            raise RefusedEverywhere(reason)
        raise Refused(reason if self.site.enforce_partition_limits else f"{reason}; it waits for ever")

    def _entry(self, job: SlurmJob, partition: SlurmPartition, request: dict[str, Any], owner: Owner) -> dict[str, Any]:
        account, _, _, qos = owner
        if not partition.accepts:
            raise Refused(f"partition {partition.name} does not accept jobs")
        if (partition.allow_qos and qos not in partition.allow_qos) or qos in partition.deny_qos:
            raise Refused(f"QOS {qos} is not allowed in partition {partition.name}")
        if (partition.allow_accounts and account not in partition.allow_accounts) or account in partition.deny_accounts:
            raise Refused(f"account {account} is not allowed in partition {partition.name}")
        mask = self.table.narrow(self.table.mask(job, partition), request)
        tres = self._tres(request, mask)
        asked = (mask, job.reservation, *request["gres"], *(value for name, value in request.items() if name != "gres"))
        return {
            "kind": self.kinds.setdefault((partition.name, *asked), len(self.kinds)),
            "partition": self.table.partitions[partition.name], "mask": mask, "tres": tres, "asked": request,
            "priority": self._static_priority(job, partition, request, tres, qos),
            "limits": self.limits.limits(job, partition, (request, tres), owner),
        }  # fmt: skip

    def _tres(self, request: dict[str, Any], mask: int) -> list[float]:
        """CPUs, memory, nodes and GRES that limits and fair share count."""
        cpus, nodes = float(request["cpus"]), float(request["nodes_min"])
        if request["exclusive"]:
            allowed = self.table.mask_rows[mask] == 1
            cpus = max(cpus, nodes * float(self.table.node_cpus[allowed].min()))
        memory = request["memory_node_mb"] * nodes if request["memory_node_mb"] > 0 else request["memory_cpu_mb"] * cpus
        return [cpus, memory, nodes, *(count * nodes for count in request["gres"])]

    def _static_priority(
        self, job: SlurmJob, partition: SlurmPartition, request: dict[str, Any], tres: list[float], qos: str
    ) -> float:
        weights, n = self.site.priority, len(self.table.names)
        if not weights.multifactor:
            return 0.0
        total, nodes, cpus = (
            self.cpus,
            max(job.nodes_min, len(self.table.named(job.nodelist)), 1),
            request["cpus_asked"],
        )
        if weights.size_relative_to_time:
            size = max(nodes * total / n, cpus) / (request["limit_s"] / 60) / total
        else:
            size = (nodes / n + cpus / total) / 2
        size = 1 - size if weights.favor_small else size
        priority = weights.job_size * min(max(size, 0.0), 1.0)
        priority += weights.partition * partition.priority_factor / self.max_factor
        if self.max_qos:
            priority += weights.qos * self.limits.qos_list[self.limits.qos[qos]].priority / self.max_qos
        amounts = dict(zip(self.table.tres_names, tres, strict=True))
        for name, weight in weights.tres.items():
            amount = amounts.get(name, 0.0)
            if weights.normal_tres and amount:
                amount /= self.table.tres_totals[name][self.table.partitions[partition.name]]
            priority += weight * amount
        return priority - job.nice

    def billing(self, column: dict[str, Any]) -> float:
        entry = column["entries"][0]
        partition = self.site.partitions[entry["partition"]]
        factor = self.limits.qos_list[column["qos"]].usage_factor
        if not partition.billing:
            return float(entry["tres"][CPU]) * factor
        names = self.table.tres_names
        parts = [weight * amount for name, amount in zip(names, entry["tres"], strict=True)
                 if (weight := partition.billing.get(name, 0.0))]  # fmt: skip
        return float(max(parts, default=0.0) if self.site.priority.max_tres else sum(parts)) * factor


def _listed(names: tuple[str, ...], own: set[str]) -> bool:
    """Whether a list lets somebody in; `-name` shuts a name out.

    >>> _listed(("-ada",), {"ada"}), _listed(("-ada",), {"bo"}), _listed(("ada",), {"bo"})
    (False, True, False)
    """
    denied = {name[1:] for name in names if name.startswith("-")}
    allowed = set(names) - {f"-{name}" for name in denied}
    return not own & denied and (not allowed or bool(own & allowed))
