"""sb3-contrib's MaskablePPO on the same environment, for comparison: a log -> a trained model and its slowdowns.

Its network takes the view as one flat vector: it is neither indifferent to the order of jobs nor small. What it learns
cannot run in the compiled simulator, so it is judged by stepping the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.workload.simulator.env import ScheduleEnv


def train_maskable(env: ScheduleEnv, steps: int, seed: int = 0) -> Any:
    """A MaskablePPO with its default settings, after so many decisions."""
    model = require("sb3_contrib", "sb3").MaskablePPO("MlpPolicy", env, seed=seed, verbose=0, device="cpu")
    return model.learn(steps)


def judge_maskable(model: Any, env: ScheduleEnv, first: Sequence[int]) -> NDArray[np.float64]:
    """The mean bounded slowdown of every window that begins at one of these jobs, always taking the likeliest job."""
    found = []
    for start in first:
        seen, info = env.reset(options={"first": start})
        over = False
        while not over:
            action, _ = model.predict(seen, action_masks=info["action_mask"], deterministic=True)
            seen, _, over, _, info = env.step(action)
        found.append(info["bounded_slowdown"])
    return np.array(found)
