"""sb3-contrib's MaskablePPO on the same environment, for comparison: a log -> a trained model and its slowdowns.

Its network takes the observation as one flat vector, so it depends on the order of the jobs and is large. It does not
run in the compiled simulation, so it is evaluated by stepping the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.workload.simulator.environment.schedule_env import ScheduleEnv


def train_maskable(env: ScheduleEnv, steps: int, seed: int = 0) -> Any:
    """A MaskablePPO model with default settings, trained for this number of steps."""
    model = require("sb3_contrib", "sb3").MaskablePPO("MlpPolicy", env, seed=seed, verbose=0, device="cpu")
    return model.learn(steps)


def evaluate_maskable(model: Any, env: ScheduleEnv, first_jobs: Sequence[int]) -> NDArray[np.float64]:
    """The mean bounded slowdown of the episodes that begin with these jobs, with deterministic actions."""
    slowdowns = []
    for first in first_jobs:
        observation, info = env.reset(options={"first": first})
        terminated = False
        while not terminated:
            action, _ = model.predict(observation, action_masks=info["action_mask"], deterministic=True)
            observation, _, terminated, _, info = env.step(action)
        slowdowns.append(info["bounded_slowdown"])
    return np.array(slowdowns)
