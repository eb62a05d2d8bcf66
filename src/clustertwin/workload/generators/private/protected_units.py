"""Jobs -> the unit that each job belongs to. Privacy protects all jobs of a unit together.

A unit is a user. Jobs of an unknown user may be by anybody: there, all jobs of one day are a unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S
from clustertwin.workload.jobs import Jobs

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ProtectedUnits:
    unit: Ints  # (job,) counted from 0
    users: int  # units that are users
    days: int  # units that are days of unknown users

    @property
    def count(self) -> int:
        return self.users + self.days


def protected_units(jobs: Jobs) -> ProtectedUnits:
    """The unit of each job: users first, then the days of jobs without a user."""
    known = jobs.user >= 0
    users, unit = np.unique(jobs.user[known], return_inverse=True)
    days, day = np.unique(jobs.submit_s[~known] // DAY_S, return_inverse=True)
    units = np.empty(len(jobs), dtype=np.int64)
    units[known], units[~known] = unit, len(users) + day
    return ProtectedUnits(units, len(users), len(days))
