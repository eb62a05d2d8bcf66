"""Many schedules at once, stepped together: (envs,) choices -> (envs, K, F) observations. Compiled, for training.

Nothing is allocated between steps; a view of `seen`, `count` and `reward` is overwritten by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import boolean, float32, float64, int64, void
from numpy.typing import NDArray

from clustertwin.workload.policies.learned import FEATURES
from clustertwin.workload.simulator.compiled import compiled
from clustertwin.workload.simulator.decisions import NO_ACCOUNTS, PENDING, PENDINGS, choose, look, to_decision
from clustertwin.workload.simulator.machine import CLOCK, CLOCKS, DUE, DUES, END, ENDS, JOB, JOBS, NONE, Records
from clustertwin.workload.simulator.usage import ACCOUNTS

_F, _I = float64[::1], int64[::1]


@compiled(
    void(
        CLOCKS, JOBS.copy(ndim=2), ENDS.copy(ndim=2), DUES.copy(ndim=2), int64[:, ::1], ACCOUNTS, _I, PENDINGS, int64,
        boolean, float64, _I, int64[:, ::1], float32[:, :, ::1], int64[:, ::1], _I, _F,
    )
)  # fmt: skip
def step_all(  # type: ignore[no-untyped-def]
    clocks,
    jobs,
    ends,
    dues,
    queues,
    accounts,
    ranks,
    pendings,
    procs,
    easy,
    bound_s,
    actions,
    room,
    seen,
    places,
    count,
    reward,
):
    """Choose in every schedule that is not over, run it to its next decision and look. A choice of -1 only looks."""
    for b in range(len(clocks)):
        clock, pending = clocks[b], pendings[b]
        reward[b] = 0.0
        if pending.over:
            count[b] = 0
            continue
        if actions[b] >= 0:
            # Beyond what was seen: the first, so that a choice that cannot be made never stops the clock.
            at = places[b, actions[b]] if actions[b] < count[b] else places[b, 0]
            choose(clock, jobs[b], ends[b], dues[b], queues[b], pending, at, bound_s)
        pending.cost = 0.0
        to_decision(clock, jobs[b], ends[b], dues[b], queues[b], accounts, ranks, pending, easy, bound_s)
        reward[b] = -pending.cost / jobs.shape[1]
        count[b] = (
            look(clock, jobs[b], dues[b], queues[b], pending, procs, room, seen[b], places[b])
            if not pending.over
            else 0
        )


class Schedules:
    """A batch of schedules. `reward` is minus the mean slowdown gathered since the last decision."""

    def __init__(
        self, procs: int, gpus: int = 0, easy: bool = False, envs: int = 32, length: int = 1024, view: int = 64,
        bound_s: float = 10.0,
    ) -> None:  # fmt: skip
        self.procs, self.gpus, self.easy, self.bound_s = procs, gpus, easy, bound_s
        self.clocks = np.zeros(envs, CLOCK)
        self.jobs = np.zeros((envs, length), JOB)
        self.ends = np.zeros((envs, length), END)
        self.dues = np.zeros((envs, min(length, procs)), DUE)
        self.queues = np.zeros((envs, length), np.int64)
        self.pendings = np.zeros(envs, PENDING)
        self.ranks = np.arange(length)
        self.room = np.zeros((2, min(length, procs)), np.int64)
        self.seen = np.zeros((envs, view, FEATURES), np.float32)
        self.places = np.zeros((envs, view), np.int64)
        self.count = np.zeros(envs, np.int64)
        self.reward = np.zeros(envs)

    def reset(self, loads: Sequence[Records]) -> None:
        """Begin these schedules, one a place, on empty machines."""
        for b, load in enumerate(loads):
            self.jobs[b] = load
        self.jobs["start_s"], self.jobs["released"] = np.nan, 0
        self.clocks[:] = np.zeros(1, CLOCK)
        self.clocks["free"], self.clocks["free_gpus"], self.clocks["head"] = self.procs, self.gpus, NONE
        self.pendings[:] = np.zeros(1, PENDING)
        self.step(np.full(len(self.clocks), -1, np.int64))

    def step(self, actions: NDArray[np.int64]) -> None:
        """Choose among what is seen, one number a schedule, and go on to the next decision."""
        step_all(
            self.clocks, self.jobs, self.ends, self.dues, self.queues, NO_ACCOUNTS, self.ranks, self.pendings,
            self.procs, self.easy, self.bound_s, actions, self.room, self.seen, self.places, self.count, self.reward,
        )  # fmt: skip

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Which rows of `seen` hold a job, (envs, K)."""
        return np.arange(self.seen.shape[1]) < self.count[:, None]

    @property
    def over(self) -> NDArray[np.bool_]:
        return self.pendings["over"] == 1

    def slowdown(self) -> NDArray[np.float64]:
        """The mean bounded slowdown of every schedule that is over."""
        wait_s = self.jobs["start_s"] - self.jobs["submit_s"]
        run_s = self.jobs["run_s"]
        return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, self.bound_s)).mean(axis=1)
