"""A small synthetic job log for examples: number of jobs, seed -> `Jobs`. No person and no machine stands behind it.

Users work in sessions on weekdays, submit jobs of similar size one after another, and ask for round time limits.
"""

from __future__ import annotations

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs, Machine, Status

CPUS = 128
USERS = 12
_LIMITS_S = np.array([900, 1800, 3600, 7200, 14400, 43200, 86400])
_MONDAY_S = 1_767_571_200.0  # 5 January 2026
_LOAD = 0.8  # of the machine


def example_log(jobs: int = 2000, seed: int = 0) -> Jobs:
    """A log of a machine with 128 CPUs and twelve users.

    >>> log = example_log(100)
    >>> len(log), log.machine.cpus
    (100, 128)
    """
    if jobs < 2:
        raise SettingsError(f"an example has at least two jobs, not {jobs}")
    rng = np.random.default_rng(seed)
    usual_s, usual_cpus = rng.lognormal(6.5, 1.0, USERS), 2 ** rng.integers(0, 6, USERS)
    rows: list[tuple[float, float, float, int, int]] = []
    while len(rows) < jobs:
        user = int(rng.zipf(1.6) - 1) % USERS
        at_s = 3600 * (9 + rng.beta(2, 3) * 12) + 86400 * rng.integers(0, 5) + 7 * 86400 * rng.integers(0, 4)
        cpus = int(np.clip(usual_cpus[user] * 2.0 ** rng.integers(-1, 2), 1, CPUS))
        for _ in range(int(rng.geometric(0.15))):
            run_s = float(np.clip(usual_s[user] * rng.lognormal(0, 0.8), 5, 86_000))
            limit_s = float(_LIMITS_S[np.searchsorted(_LIMITS_S, run_s * rng.uniform(1.0, 3.0)).clip(max=6)])
            rows.append((at_s, min(run_s, limit_s), limit_s, cpus, user))
            at_s += rng.exponential(120)
    submit_s, run_s_, request_s, cpus_, user_ = map(np.array, zip(*sorted(rows[:jobs]), strict=True))
    submit_s = np.round((submit_s - submit_s[0]) * (run_s_ * cpus_).sum() / (_LOAD * CPUS * np.ptp(submit_s)))
    status = np.where(rng.random(jobs) < 0.06, Status.FAILED, Status.COMPLETED)
    return Jobs.build(
        submit_s, np.round(run_s_).clip(min=1), request_s=request_s, cpus=cpus_, user=user_, status=status,
        epoch_s=_MONDAY_S, machine=Machine(nodes=CPUS, cpus_per_node=1, name="example"),
    )  # fmt: skip
