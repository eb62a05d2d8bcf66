"""Limits of QOS and associations as rows: which counters a job adds to, and how far each may go."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from clustertwin.workload.slurm.controller.account_table import AccountTable
from clustertwin.workload.slurm.controller.site_arrays import Refused
from clustertwin.workload.slurm.joblog.job_table import SlurmJob
from clustertwin.workload.slurm.site.slurm_site import Qos, SlurmPartition, SlurmSite, UsageLimits

#: account, user, association, QOS
Owner = tuple[str, int, int, str]


class LimitTable:
    """Counters and limit rows, gathered job by job."""

    def __init__(self, site: SlurmSite, accounts: AccountTable, tres_names: list[str], remarks: Counter[str]) -> None:
        self.site, self.accounts, self.tres_names, self.remarks = site, accounts, tres_names, remarks
        self.qos = {qos.name: i for i, qos in enumerate(site.qos)} or {"normal": 0}
        self.qos_list = site.qos or (Qos("normal"),)
        self.counters: dict[Any, int] = {}
        self.limit_rows: dict[tuple[float, ...], int] = {}
        self.limit_sets: dict[Any, list[tuple[int, int]]] = {}
        self._submit_sets: dict[Any, list[tuple[int, float]]] = {}
        self._source_lists: dict[Any, list[tuple[Any, UsageLimits]]] = {}

    def limits(
        self,
        job: SlurmJob,
        partition: SlurmPartition,
        asked: tuple[dict[str, Any], list[float]],
        owner: Owner,
    ) -> list[tuple[int, int]]:
        """Counters of an entry with the limits on them, by Slurm's precedence: partition QOS, job QOS, associations."""
        account, user, association, qos = owner
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

    def _sources(self, partition: SlurmPartition, owner: Owner) -> list[tuple[Any, UsageLimits]]:
        _, _, association, qos = owner
        key = (partition.qos, qos, association)
        if key not in self._source_lists:
            self._source_lists[key] = self._ordered_sources(partition, association, qos)
        return self._source_lists[key]

    def _ordered_sources(self, partition: SlurmPartition, association: int, qos: str) -> list[tuple[Any, UsageLimits]]:
        job_qos = self.qos_list[self.qos[qos]]
        part_qos = self.qos_list[self.qos[partition.qos]] if partition.qos in self.qos else None
        both = [job_qos] if part_qos is None or part_qos is job_qos else [part_qos, job_qos]
        if "overpartqos" in {flag.lower() for flag in job_qos.flags}:
            both.reverse()
        sources: list[tuple[Any, UsageLimits]] = [(("qos", item.name), item.limits) for item in both]
        return sources + [(("association", a), self.accounts.rows[a].limits) for a in self.accounts.chain(association)]

    def _precedence(self, partition: SlurmPartition, owner: Owner) -> list[tuple[int, int]]:
        account, user = owner[0], owner[1]
        pairs, decided = [], set()
        for source, limits in self._sources(partition, owner):
            scopes = [(source, limits.group_tres, limits.group_jobs, "group")]
            if source[0] == "qos":
                scopes += [
                    ((*source, "user", user), limits.max_tres_user, limits.max_jobs_user, "user"),
                    ((*source, "account", account), limits.max_tres_account, limits.max_jobs_account, "account"),
                ]
            elif self.accounts.rows[source[1]].user:
                scopes.append(((*source, "jobs"), {}, self._inherited(source[1], "max_jobs"), "user"))
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

    def _inherited(self, association: int, name: str) -> float:
        """A limit of each user of an account holds for every user below it that has none of its own."""
        found = (float(getattr(self.accounts.rows[a].limits, name)) for a in self.accounts.chain(association))
        return next(filter(math.isfinite, found), math.inf)

    def submit_limits(self, partition: SlurmPartition, owner: Owner) -> list[tuple[int, float]]:
        """Counters of jobs in the system, each with the most that it may hold."""
        if not self.site.enforce_limits:
            return []
        key = (partition.qos, owner)
        if key not in self._submit_sets:
            self._submit_sets[key] = self._submit_precedence(partition, owner)
        return self._submit_sets[key]

    def _submit_precedence(self, partition: SlurmPartition, owner: Owner) -> list[tuple[int, float]]:
        pairs, decided = [], set()
        for source, limits in self._sources(partition, owner):
            scopes = {"group": (source, limits.group_submit)}
            if source[0] == "qos":
                scopes["user"] = ((*source, "user", owner[1]), limits.max_submit_user)
                scopes["account"] = ((*source, "account", owner[0]), limits.max_submit_account)
            elif self.accounts.rows[source[1]].user:
                scopes["user"] = (source, self._inherited(source[1], "max_submit"))
            for scope, (counter, limit) in scopes.items():
                if math.isfinite(limit) and scope not in decided:
                    pairs.append((self._counter((*counter, "submit", scope)), limit))
                    if source[0] == "qos":
                        decided.add(scope)
        return pairs

    def _check_job_limits(
        self, asked: tuple[dict[str, Any], list[float]], partition: SlurmPartition, owner: Owner
    ) -> None:
        request, tres = asked
        amounts = dict(zip(self.tres_names, tres, strict=True))
        decided: set[str] = set()
        for source, limits in self._sources(partition, owner):
            for name, most in limits.max_tres_job.items():
                if name not in decided and amounts.get(name, 0.0) > most:
                    raise Refused(f"more {name} than {source[0]} {source[1]} allows a job; it waits for ever")
                decided.add(name)
            for name, least in limits.min_tres_job.items():
                if amounts.get(name, 0.0) < least:
                    raise Refused(f"less {name} than {source[0]} {source[1]} asks for; it waits for ever")
            if "wall" not in decided and request["limit_s"] > limits.max_wall_s:
                raise Refused(f"a longer time limit than {source[0]} {source[1]} allows; it waits for ever")
            if math.isfinite(limits.max_wall_s):
                decided.add("wall")

    def _counter(self, key: Any) -> int:
        return self.counters.setdefault(key, len(self.counters))

    def _limit_row(self, tres: dict[str, float], jobs: float) -> int:
        names = self.tres_names
        for name in tres.keys() - set(names):
            self.remarks[f"limit on {name} is not modelled"] += 1
        row = (*(tres.get(name, math.inf) for name in names), jobs)
        return self.limit_rows.setdefault(row, len(self.limit_rows))
