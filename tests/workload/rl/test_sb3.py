import numpy as np
import pytest

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.environment.schedule_env import EnvSettings, ScheduleEnv


@pytest.mark.slow
def test_maskable_ppo_trains_on_the_environment():
    pytest.importorskip("sb3_contrib")
    from clustertwin.workload.rl.sb3 import evaluate_maskable, train_maskable

    rng = np.random.default_rng(0)
    run_s = rng.integers(1, 500, 100)
    jobs = Jobs.build(np.cumsum(rng.integers(0, 60, 100)), run_s, request_s=run_s, cpus=rng.integers(1, 9, 100))
    env = ScheduleEnv(jobs, EnvSettings(procs=16, length=32, view=16, backfill="easy"))
    model = train_maskable(env, steps=128)
    slowdowns = evaluate_maskable(model, env, [0, 50])
    assert slowdowns.shape == (2,)
    assert (slowdowns >= 1).all()
