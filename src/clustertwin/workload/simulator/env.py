"""The Gymnasium face: one schedule, one decision a step. `gymnasium.make("clustertwin/Schedule-v0", jobs=…, procs=…)`.

An observation is (K, F): the features of up to K waiting jobs, zeros below. An action picks a row; `info` holds the
mask of rows that are jobs, and a row that is none counts as the first (`info["invalid"]`). The reward is minus the mean
slowdown gathered until the next decision, so that an episode's sum is minus its mean slowdown, up to a constant.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies.learned import FEATURES
from clustertwin.workload.simulator.intake import Unit, take_in
from clustertwin.workload.simulator.vector import Schedules

ID = "clustertwin/Schedule-v0"

Observation = NDArray[np.float32]


class ScheduleEnv(gymnasium.Env[Observation, np.int64]):
    """Windows of a log, drawn by seed. Ends when every job has started; is cut off after `max_steps`, if given."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        jobs: Jobs,
        procs: int,
        backfill: Literal["none", "easy"] = "none",
        length: int = 256,
        view: int = 64,
        gpus: int = 0,
        unit: Unit = "cpus",
        bound_s: float = 10.0,
        max_steps: int | None = None,
    ) -> None:
        self.load = take_in(jobs, procs, gpus, unit).load
        self.length = min(length, len(self.load))
        self.max_steps, self.steps = max_steps, 0
        self.schedules = Schedules(procs, gpus, backfill == "easy", 1, self.length, view, bound_s)
        # 128: the largest logarithm a float can have, as scaled in the features.
        self.observation_space = Box(0.0, 128.0, (view, FEATURES), np.float32)
        self.action_space = Discrete(view)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a window; `options={"first": i}` says which."""
        super().reset(seed=seed)
        first = (options or {}).get("first")
        if first is None:
            first = int(self.np_random.integers(0, len(self.load) - self.length + 1))
        self.steps = 0
        self.schedules.reset([self.load[first : first + self.length]])
        return self._seen(), {"action_mask": self.action_masks(), "first": first}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        invalid = not self.action_masks()[action]
        self.schedules.step(np.array([action], dtype=np.int64))
        self.steps += 1
        over = bool(self.schedules.over[0])
        info: dict[str, Any] = {"action_mask": self.action_masks(), "invalid": invalid}
        if over:
            info["bounded_slowdown"] = float(self.schedules.slowdown()[0])
        truncated = not over and self.max_steps is not None and self.steps >= self.max_steps
        return self._seen(), float(self.schedules.reward[0]), over, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Which rows are jobs; the name sb3-contrib asks for."""
        return self.schedules.mask[0]

    def _seen(self) -> Observation:
        seen = self.schedules.seen[0].copy()
        seen[self.schedules.count[0] :] = 0.0
        return seen


def register() -> None:
    """Make the environment known to Gymnasium under its versioned id."""
    if ID not in gymnasium.registry:
        gymnasium.register(ID, entry_point="clustertwin.workload.simulator.env:ScheduleEnv")
