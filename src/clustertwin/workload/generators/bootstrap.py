"""Real jobs drawn independently, each with its own interval: exact rows, no order, and every job is a copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clustertwin.workload.generators.contract import Fitted, GeneratorState, check_log
from clustertwin.workload.generators.saved_generator import jobs_from, jobs_state
from clustertwin.workload.generators.workload_change import ModelledLog, check_count
from clustertwin.workload.jobs import Jobs

BLOCK_JOBS = 100_000


@dataclass(frozen=True, slots=True)
class Bootstrap:
    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedBootstrap:
        check_log(jobs)
        return FittedBootstrap(jobs)


@dataclass(frozen=True, slots=True)
class FittedBootstrap(Fitted):
    log: Jobs

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        check_count(n)
        interval_s, clock_s = self.log.interval_s, 0.0
        for drawn in range(0, n, BLOCK_JOBS):
            which = rng.integers(0, len(self.log), min(BLOCK_JOBS, n - drawn))
            submit_s = clock_s + np.cumsum(interval_s[which])
            clock_s = float(submit_s[-1])
            changes: dict[str, Any] = {
                "id": np.arange(drawn + 1, drawn + len(which) + 1),
                "submit_s": submit_s,
                "wait_s": np.full(len(which), -1.0),
                "header": (),
            }
            yield replace(self.log.take(which), **changes)

    def modelled_log(self) -> ModelledLog:
        return ModelledLog.of(self.log)

    def state(self) -> GeneratorState:
        return jobs_state(self.log)

    @classmethod
    def from_state(cls, state: GeneratorState) -> FittedBootstrap:
        return cls(jobs_from(state))
