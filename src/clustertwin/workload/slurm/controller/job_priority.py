"""priority/multifactor: the account tree's usage and a job's age -> fair-share factors and priorities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustertwin.core.compiled import borrowing
from clustertwin.workload.slurm.controller.site_arrays import Floats, Ints
from clustertwin.workload.slurm.controller.stable_sort import sort_by_key


class FairShareRoom(NamedTuple):
    """Room for a walk through the account tree, one row per association."""

    key: Floats  # minus the level fair share, or the effective usage
    norm: Floats
    stack: Ints
    tied: Ints
    ordered: Ints
    spare: Ints


def new_fair_share_room(associations: int) -> FairShareRoom:
    n = associations + 1
    return FairShareRoom(np.zeros(n), np.zeros(n), *(np.zeros(n, np.int64) for _ in range(4)))


@borrowing
def rank_users(shares, children_of, usage, factor, room):  # type: ignore[no-untyped-def]
    """Rank users by their accounts' level fair share (shares over usage), from the root down; ties share a rank."""
    n = len(usage)
    key, stack, tied = room.key, room.stack, room.tied
    users = 0
    for a in range(1, n):
        users += shares.is_user[a]
        parent = shares.parent[a]
        if shares.uses_parent[a]:
            key[a] = -np.inf if shares.is_user[a] else 1.0
            continue
        share = shares.shares[a] / shares.level_shares[a] if shares.level_shares[a] > 0 else 0.0
        used = usage[a] / usage[parent] if usage[parent] > 0 else 0.0
        key[a] = 0.0 if share == 0.0 else (-np.inf if used == 0.0 else -share / used)
    stack[0], tied[0] = 0, 0
    depth, rank, rank_without_ties = 1, users, users
    while depth:
        depth -= 1
        a, is_tied = stack[depth], tied[depth]
        if a > 0 and shares.is_user[a]:
            if not is_tied:
                rank = rank_without_ties
            factor[a] = rank / users
            rank_without_ties -= 1
            continue
        first, count = shares.child_from[a], shares.child_to[a] - shares.child_from[a]
        ordered = room.ordered
        for k in range(count):
            ordered[k] = children_of[first + k]
        sort_by_key(ordered, key, room.spare, count)
        # Users come before accounts of the same level.
        for k in range(1, count):
            m = k
            while (
                m > 0
                and key[ordered[m]] == key[ordered[m - 1]]
                and shares.is_user[ordered[m]]
                and not shares.is_user[ordered[m - 1]]
            ):
                ordered[m], ordered[m - 1] = ordered[m - 1], ordered[m]
                m -= 1
        for k in range(count - 1, -1, -1):
            stack[depth] = ordered[k]
            tied[depth] = is_tied if k == 0 else key[ordered[k]] == key[ordered[k - 1]]
            depth += 1


@borrowing
def classic_fair_share(shares, usage, factor, dampening, room):  # type: ignore[no-untyped-def]
    """2^(-effective usage / normalised shares / dampening) for every association."""
    effective, norm = room.key, room.norm
    effective[0] = norm[0] = 1.0
    for a in range(1, len(usage)):
        parent = shares.parent[a]
        if shares.uses_parent[a]:
            effective[a], norm[a] = effective[parent], norm[parent]
        else:
            share = shares.shares[a] / shares.level_shares[a] if shares.level_shares[a] > 0 else 0.0
            norm[a] = norm[parent] * share
            used = min(usage[a] / usage[0], 1.0) if usage[0] > 0 else 0.0
            effective[a] = used if parent == 0 else used + (effective[parent] - used) * share
        factor[a] = 2.0 ** (-(effective[a] / norm[a]) / dampening) if norm[a] > 0 else 0.0


@borrowing
def charge(shares, usage, association, amount):  # type: ignore[no-untyped-def]
    """Add usage to an association and to all above it."""
    a = association
    while a >= 0:
        usage[a] += amount
        a = shares.parent[a]


@borrowing
def priority_of(tuning, fixed, age_s, fair_share):  # type: ignore[no-untyped-def]
    """The sum of all factors, a whole number of at least 1 as in Slurm."""
    age = min(max(age_s, 0.0) / tuning.max_age_s, 1.0) if tuning.max_age_s > 0 else 1.0
    total = fixed + tuning.weight_age * age + tuning.weight_fair_share * fair_share
    return float(int(min(max(total, 1.0), 4294967295.0)))
