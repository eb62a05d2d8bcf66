"""Who used the machine lately: starts and ends of jobs -> each user's part of its use, halved every week."""

from __future__ import annotations

import numpy as np
from numba import from_dtype, njit

from clustertwin.workload.simulator.machine import Records

HALF_LIFE_S = 7 * 86400.0  # Slurm's PriorityDecayHalfLife by default
DECAY = np.log(2.0) / HALF_LIFE_S


#: Processor seconds of a user: what there is, how fast it grows, and since when. The last account is everyone's.
ACCOUNT = np.dtype([("amount", "f8"), ("rate", "f8"), ("since_s", "f8")])
ACCOUNTS = from_dtype(ACCOUNT)[::1]


def no_usage(jobs: Records) -> Records:
    """Nobody has used anything yet."""
    accounts = np.zeros(int(jobs["user"].max()) + 2, ACCOUNT)
    accounts["since_s"] = jobs["submit_s"][0]
    return accounts


@njit
def settle(account, now_s):  # type: ignore[no-untyped-def]
    """Bring one account up to now: growth at a steady rate under exponential decay, exactly."""
    if account.since_s != now_s:
        steady = account.rate / DECAY
        account.amount = steady + (account.amount - steady) * np.exp(-DECAY * (now_s - account.since_s))
        account.since_s = now_s


@njit
def charge(accounts, user, procs, now_s):  # type: ignore[no-untyped-def]
    """From now on the user holds so many processors more, or fewer. No accounts, no bookkeeping."""
    if len(accounts) == 0:
        return
    for which in (np.int64(user), np.int64(len(accounts) - 1)):
        account = accounts[which]
        settle(account, now_s)
        account.rate += procs


@njit
def share(accounts, user, now_s):  # type: ignore[no-untyped-def]
    """The user's part of the machine's recent use, 0 to 1; 0 where there are no accounts."""
    if len(accounts) == 0:
        return 0.0
    own, everyone = accounts[user], accounts[len(accounts) - 1]
    settle(own, now_s)
    settle(everyone, now_s)
    return own.amount / everyone.amount if everyone.amount > 0.0 else 0.0
