"""The Gymnasium environment: one simulation, one decision per step.

`gymnasium.make("clustertwin:clustertwin/Schedule-v0", jobs=…, procs=…)`; see `EnvSettings` for the options.

An observation is (K, F): the features of up to K waiting jobs, followed by zeros. An action selects a row.
`info["action_mask"]` marks the rows that hold a job. An action without a job selects the first row and sets
`info["invalid"]`. The reward is minus the mean slowdown that was added until the next decision, so the return of an
episode is minus its mean slowdown, up to a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from clustertwin import gymnasium_hook
from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import Unit
from clustertwin.workload.policies.learned import FEATURES
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.environment.schedule_batch import ScheduleBatch
from clustertwin.workload.simulator.simulate_log import SchedulingRules

Observation = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EnvSettings:
    """The options of `gymnasium.make`, besides the jobs."""

    procs: int
    backfill: Literal["none", "easy"] = "none"
    length: int = 256  # jobs in an episode
    view: int = 64  # K, the rows of an observation
    gpus: int = 0
    unit: Unit = "cpus"
    bound_s: float = 10.0  # of the bounded slowdown
    max_steps: int | None = None  # truncate episodes after this number of steps


class ScheduleEnv(gymnasium.Env[Observation, np.int64]):
    """An episode is a random part of a log. It terminates when every job has started."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, jobs: Jobs, settings: EnvSettings) -> None:
        self.settings, self.steps = settings, 0
        admission = admit(jobs, settings.procs, settings.gpus, settings.unit)
        self.records, self.admitted = admission.records, admission.admitted
        self.length = min(settings.length, len(self.records))
        rules = SchedulingRules(settings.procs, settings.gpus, settings.backfill, bound_s=settings.bound_s)
        self.batch = ScheduleBatch(rules, 1, self.length, settings.view)
        # 128 is an upper bound of the features: the largest exponent of a float is 1024, and features divide by 8.
        self.observation_space = Box(0.0, 128.0, (settings.view, FEATURES), np.float32)
        self.action_space = Discrete(settings.view)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; `options={"first": i}` sets the job of the log that it begins with.

        If that job cannot run on the machine, the next one that can begins.
        """
        super().reset(seed=seed)
        asked = (options or {}).get("first")
        if asked is None:
            first = int(self.np_random.integers(0, len(self.records) - self.length + 1))
        else:
            left = np.flatnonzero(self.admitted >= asked)
            if len(left) < self.length:
                raise SettingsError(f"first: {asked} leaves {len(left)} jobs of the log; an episode has {self.length}")
            first = int(left[0])
        self.steps = 0
        self.batch.reset([self.records[first : first + self.length]])
        return self._observation(), {"action_mask": self.action_masks(), "first": int(self.admitted[first])}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        invalid = not self.action_masks()[action]
        self.batch.step(np.array([action], dtype=np.int64))
        self.steps += 1
        terminated = bool(self.batch.over[0])
        info: dict[str, Any] = {"action_mask": self.action_masks(), "invalid": invalid}
        if terminated:
            info["bounded_slowdown"] = float(self.batch.mean_slowdowns()[0])
        max_steps = self.settings.max_steps
        truncated = not terminated and max_steps is not None and self.steps >= max_steps
        return self._observation(), float(self.batch.rewards[0]), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Which rows hold a job. sb3-contrib calls this method by its name."""
        return self.batch.masks[0]

    def _observation(self) -> Observation:
        return np.where(self.action_masks()[:, None], self.batch.observations[0], np.float32(0.0))


def make_schedule_env(jobs: Jobs, **options: Any) -> ScheduleEnv:
    """The entry point of `gymnasium.make`, which passes the settings as keyword arguments."""
    return ScheduleEnv(jobs, EnvSettings(**options))


def register() -> None:
    """Register the environment with Gymnasium."""
    gymnasium_hook.register(gymnasium)
