"""Real jobs drawn one by one, each with the interval it had: perfect rows, no order, every one a copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clustertwin.workload.generators.contract import Fitted, State, check_count, check_log
from clustertwin.workload.generators.storage import jobs_from, jobs_state
from clustertwin.workload.jobs import Jobs

BLOCK_JOBS = 100_000


@dataclass(frozen=True, slots=True)
class Bootstrap:
    def fit(self, jobs: Jobs, rng: np.random.Generator) -> Drawn:
        check_log(jobs)
        return Drawn(jobs)


@dataclass(frozen=True, slots=True)
class Drawn(Fitted):
    log: Jobs

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        check_count(n)
        interval_s, clock_s = self.log.interval_s, 0.0
        for made in range(0, n, BLOCK_JOBS):
            which = rng.integers(0, len(self.log), min(BLOCK_JOBS, n - made))
            submit_s = clock_s + np.cumsum(interval_s[which])
            clock_s = float(submit_s[-1])
            changes: dict[str, Any] = {
                "id": np.arange(made + 1, made + len(which) + 1),
                "submit_s": submit_s,
                "wait_s": np.full(len(which), -1.0),
                "header": (),
            }
            yield replace(self.log.take(which), **changes)

    def state(self) -> State:
        return jobs_state(self.log)

    @classmethod
    def from_state(cls, state: State) -> Drawn:
        return cls(jobs_from(state))
