"""Fair-share usage: job starts and ends -> each user's share of the recent processor time, with a half-life of a week.

Compiled. The formula is Slurm's: processor seconds decay exponentially.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, njit
from numpy.typing import NDArray

HALF_LIFE_S = 7 * 86400.0  # the default of Slurm's PriorityDecayHalfLife
DECAY = np.log(2.0) / HALF_LIFE_S

#: The decayed processor seconds of one user, the processors in use, and the time of the last update. The last account
#: is the sum over all users.
ACCOUNT = np.dtype([("usage", "f8"), ("procs", "f8"), ("updated_s", "f8")])
ACCOUNTS = from_dtype(ACCOUNT)[::1]


def new_accounts(jobs: NDArray[Any]) -> NDArray[Any]:
    """Empty accounts for the users of these job records."""
    accounts = np.zeros(int(jobs["user"].max()) + 2, ACCOUNT)
    accounts["updated_s"] = jobs["submit_s"][0]
    return accounts


def no_accounts() -> NDArray[Any]:
    """Accounts for policies that do not use fair share; usage is then not tracked."""
    return np.zeros(0, ACCOUNT)


@njit
def update(account, now_s):  # type: ignore[no-untyped-def]
    """Bring one account up to date. The processors in use are constant since the last update, so this is exact."""
    if account.updated_s != now_s:
        steady = account.procs / DECAY
        account.usage = steady + (account.usage - steady) * np.exp(-DECAY * (now_s - account.updated_s))
        account.updated_s = now_s


@njit
def charge(accounts, user, procs, now_s):  # type: ignore[no-untyped-def]
    """Add processors to those that the user holds from now on; a negative number removes them."""
    if len(accounts) == 0:
        return
    for index in (np.int64(user), np.int64(len(accounts) - 1)):
        account = accounts[index]
        update(account, now_s)
        account.procs += procs


@njit
def usage_ratio(accounts, user, now_s):  # type: ignore[no-untyped-def]
    """The user's share of the recent usage, 0 to 1; 0 if usage is not tracked."""
    if len(accounts) == 0:
        return 0.0
    own, total = accounts[user], accounts[len(accounts) - 1]
    update(own, now_s)
    update(total, now_s)
    return own.usage / total.usage if total.usage > 0.0 else 0.0
