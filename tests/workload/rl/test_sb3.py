import numpy as np
import pytest

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.env import ScheduleEnv


@pytest.mark.slow
def test_maskable_ppo_trains_on_the_environment_as_it_is():
    pytest.importorskip("sb3_contrib")
    from clustertwin.workload.rl.sb3 import judge_maskable, train_maskable

    rng = np.random.default_rng(0)
    run_s = rng.integers(1, 500, 100)
    jobs = Jobs.build(np.cumsum(rng.integers(0, 60, 100)), run_s, request_s=run_s, cpus=rng.integers(1, 9, 100))
    env = ScheduleEnv(jobs, procs=16, length=32, view=16, backfill="easy")
    model = train_maskable(env, steps=128)
    found = judge_maskable(model, env, [0, 50])
    assert found.shape == (2,)
    assert (found >= 1).all()
