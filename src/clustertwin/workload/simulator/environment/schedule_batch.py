"""Many simulations stepped together: (envs,) actions -> (envs, K, F) observations. Compiled, for training.

A step allocates nothing: it overwrites the observations, counts and rewards of the previous step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import boolean, float32, float64, int64, types, void
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled_for
from clustertwin.workload.policies.learned import FEATURES
from clustertwin.workload.simulator.environment.decision_points import (
    DECISION,
    DECISIONS,
    choose,
    observe,
    run_to_decision,
)
from clustertwin.workload.simulator.fair_share import ACCOUNTS, no_accounts
from clustertwin.workload.simulator.machine_state import (
    END_EVENT,
    END_EVENTS,
    JOB,
    JOBS,
    NONE,
    RUNNING_JOB,
    RUNNING_JOBS,
    STATE,
    STATES,
    Records,
)
from clustertwin.workload.simulator.scheduling_metrics import bounded_slowdown
from clustertwin.workload.simulator.simulate_log import SchedulingRules


class MachineBatch(NamedTuple):
    """A `MachineState` and a decision for each environment; the first axis of an array is the environment."""

    states: Records
    jobs: Records
    end_events: Records
    running: Records
    queues: NDArray[np.int64]
    decisions: Records
    accounts: Records  # shared, and empty: usage is not tracked
    availability: NDArray[np.int64]  # shared: every step fills it in anew


class StepResults(NamedTuple):
    """What a step returns for each environment."""

    observations: NDArray[np.float32]  # (envs, K, F)
    positions: NDArray[np.int64]  # (envs, K): the position of each row's job in the queue
    counts: NDArray[np.int64]  # (envs,): rows that hold a job
    rewards: NDArray[np.float64]  # (envs,)


# Plain tuples, which numba recognises faster than named ones.
_BATCH = types.Tuple(
    (
        STATES, JOBS.copy(ndim=2), END_EVENTS.copy(ndim=2), RUNNING_JOBS.copy(ndim=2), int64[:, ::1], DECISIONS,
        ACCOUNTS, int64[:, ::1],
    )
)  # fmt: skip
_RESULTS = types.Tuple((float32[:, :, ::1], int64[:, ::1], int64[::1], float64[::1]))


@compiled_for(void(_BATCH, int64[::1], int64[::1], boolean, float64, _RESULTS))
def step_all(batch, rank, actions, easy, bound_s, results):  # type: ignore[no-untyped-def]
    """Apply the actions and simulate each environment to its next decision. The action -1 only observes."""
    states, jobs, end_events, running, queues, decisions, accounts, availability = batch
    observations, positions, counts, rewards = results
    for env in range(len(states)):
        decision, action = decisions[env], actions[env]
        rewards[env] = 0.0
        if decision.over:
            counts[env] = 0
            continue
        machine = (
            states[env : env + 1], jobs[env], end_events[env], running[env], queues[env], accounts, availability
        )  # fmt: skip
        if action >= 0:
            # An invalid action selects the first job, so that the simulation always goes on.
            row = action if action < counts[env] else 0
            choose(machine, decision, positions[env, row], bound_s)
        decision.added_slowdown = 0.0
        run_to_decision(machine, decision, rank, easy, bound_s)
        rewards[env] = -decision.added_slowdown / jobs.shape[1]
        counts[env] = observe(machine, decision, observations[env], positions[env]) if not decision.over else 0


class ScheduleBatch:
    """A batch of environments. The reward is minus the mean slowdown that was added since the last decision."""

    def __init__(self, rules: SchedulingRules, envs: int, length: int, max_jobs: int) -> None:
        """Environments of `length` jobs each. An observation has up to `max_jobs` waiting jobs."""
        self.rules = rules
        most_running = min(length, rules.procs)
        self.rank = np.arange(length)
        self.batch = MachineBatch(
            states=np.zeros(envs, STATE),
            jobs=np.zeros((envs, length), JOB),
            end_events=np.zeros((envs, length), END_EVENT),
            running=np.zeros((envs, most_running), RUNNING_JOB),
            queues=np.zeros((envs, length), np.int64),
            decisions=np.zeros(envs, DECISION),
            accounts=no_accounts(),
            availability=np.zeros((2, most_running), np.int64),
        )
        self.results = StepResults(
            observations=np.zeros((envs, max_jobs, FEATURES), np.float32),
            positions=np.zeros((envs, max_jobs), np.int64),
            counts=np.zeros(envs, np.int64),
            rewards=np.zeros(envs),
        )

    def reset(self, sequences: Sequence[Records]) -> None:
        """Begin with these job records, one sequence for each environment, on idle machines."""
        states, jobs = self.batch.states, self.batch.jobs
        for env, sequence in enumerate(sequences):
            jobs[env] = sequence
        jobs["start_s"], jobs["released"] = np.nan, 0
        states[:] = np.zeros(1, STATE)
        states["procs"] = states["free_procs"] = self.rules.procs
        states["free_gpus"], states["head"] = self.rules.gpus, NONE
        self.batch.decisions[:] = np.zeros(1, DECISION)
        self.step(np.full(len(states), -1, np.int64))

    def step(self, actions: NDArray[np.int64]) -> None:
        """Choose one row of each observation and go on to the next decisions."""
        easy, bound_s = self.rules.backfill == "easy", self.rules.bound_s
        step_all(tuple(self.batch), self.rank, actions, easy, bound_s, tuple(self.results))

    @property
    def observations(self) -> NDArray[np.float32]:
        return self.results.observations

    @property
    def rewards(self) -> NDArray[np.float64]:
        return self.results.rewards

    @property
    def masks(self) -> NDArray[np.bool_]:
        """Which rows of the observations hold a job, (envs, K)."""
        return np.arange(self.observations.shape[1]) < self.results.counts[:, None]

    @property
    def over(self) -> NDArray[np.bool_]:
        return self.batch.decisions["over"] == 1

    @property
    def remaining(self) -> NDArray[np.float64]:
        """The share of the jobs that have not started, (envs,)."""
        return 1.0 - self.batch.states["started"] / self.batch.jobs.shape[1]

    def mean_slowdowns(self) -> NDArray[np.float64]:
        """The mean bounded slowdown of every environment that is over."""
        jobs = self.batch.jobs
        return bounded_slowdown(jobs["start_s"] - jobs["submit_s"], jobs["run_s"], self.rules.bound_s).mean(axis=1)
