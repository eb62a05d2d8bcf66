"""The account tree as rows: associations of the site, and those that only the log names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clustertwin.workload.slurm.controller.site_arrays import SHARES, Ints, Rows
from clustertwin.workload.slurm.joblog.job_table import SlurmLog
from clustertwin.workload.slurm.site.slurm_site import PARENT_SHARES, Association, SlurmSite


class AccountTable:
    """Associations; the root of the tree is row 0."""

    def __init__(self, site: SlurmSite, log: SlurmLog) -> None:
        self.site, self.log = site, log
        self.index = self._association_index()

    def _association_index(self) -> dict[tuple[str, str], int]:
        """(account, user) -> row; accounts and users that only the log names are added with one share.

        A user may have an association for one partition beside the general one, which comes last.
        """
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
            for name in ready or list(accounts)[:1]:
                entry = accounts.pop(name)
                if not ready:  # usage is added to all accounts above, which would never end
                    self.site.report.add("assumed", "accounts that are below themselves are taken below root")
                    entry = replace(entry, parent="root")
                rows.append(entry)
                placed.add(name)
        users = [entry for entry in self.site.associations if entry.user]
        rows += sorted(users, key=lambda entry: not entry.partition)
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
        self.rows = rows
        self._of_partition = {(entry.account, entry.user, entry.partition): i for i, entry in enumerate(rows)}
        return {(entry.account, entry.user): i for i, entry in enumerate(rows)}

    def find(self, account: str, user: str, partition: str) -> int | None:
        """The association of a user for this partition, or the general one, or the account's."""
        general = self.index.get((account, user), self.index.get((account, "")))
        return self._of_partition.get((account, user, partition), general)

    def share_rows(self) -> tuple[Rows, Ints]:
        rows = self.rows
        n = len(rows)
        parent = np.zeros(n, np.int64)
        for i, entry in enumerate(rows[1:], 1):
            parent[i] = self.index.get((entry.account if entry.user else entry.parent, ""), 0)
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

    def chain(self, association: int) -> list[int]:
        """An association and its ancestors."""
        chain = [association]
        while chain[-1] != 0 and len(chain) < 100:
            entry = self.rows[chain[-1]]
            chain.append(self.index.get((entry.account if entry.user else entry.parent, ""), 0))
        return chain
