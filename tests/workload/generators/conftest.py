"""A small synthetic log: users work in sessions on weekdays, repeat jobs, and sometimes reach a limit."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.workload.jobs import Jobs, Machine


def office_log(days: int = 56, users: int = 8, seed: int = 5) -> Jobs:
    rng = np.random.default_rng(seed)
    rows: list[tuple[float, ...]] = []
    for user in range(1, users + 1):
        favourites = rng.choice([1, 2, 4, 8, 16, 32], 3)
        for day in range(days):
            if day % 7 >= 5 or rng.random() < 0.2:
                continue
            for _ in range(rng.integers(1, 4)):
                now_s = day * 86400 + rng.normal(13, 3) * 3600
                nodes, limit_s = rng.choice(favourites), float(rng.choice([1800, 3600, 7200]))
                for _ in range(rng.geometric(0.25)):
                    over = rng.random() < 0.2
                    run_s = limit_s + rng.uniform(5, 40) if over else limit_s * rng.uniform(0.02, 0.95)
                    rows.append((max(now_s, 0), user, nodes, limit_s, run_s, 5 if over else 1))
                    now_s += rng.exponential(200)
    table = np.array(sorted(rows))
    return Jobs.build(
        np.round(table[:, 0]), np.round(table[:, 4], 2), user=table[:, 1], nodes=table[:, 2], cpus=table[:, 2] * 16,
        request_s=table[:, 3], status=table[:, 5], epoch_s=1_700_438_400.0,  # a Monday
        machine=Machine(nodes=64, cpus_per_node=16),
    )  # fmt: skip


@pytest.fixture(scope="session")
def log() -> Jobs:
    return office_log()


@pytest.fixture(scope="session")
def make_log():
    """`office_log` with other days, users or seed."""
    return office_log
