"""The environment follows the rules of the simulator and gives the same schedules."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from clustertwin.core.errors import SettingsError
from clustertwin.gymnasium_hook import ID
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies.learned import FEATURES, HIDDEN, WEIGHTS, learned
from clustertwin.workload.simulator import SchedulingRules, simulate
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.environment.schedule_batch import ScheduleBatch
from clustertwin.workload.simulator.environment.schedule_env import register

PROCS = 16


def log(n: int = 120, seed: int = 0) -> Jobs:
    rng = np.random.default_rng(seed)
    run_s = rng.lognormal(4, 1.5, n).round() + 1
    return Jobs.build(
        np.cumsum(rng.exponential(60, n)).round(),
        run_s,
        request_s=run_s * rng.uniform(1, 4, n).round(1),
        cpus=2 ** rng.integers(0, 5, n),
    )


def env(**options) -> gymnasium.Env:
    register()
    return gymnasium.make(ID, jobs=log(), procs=PROCS, length=60, **options)


@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_the_environment_passes_gymnasiums_checks(backfill: str):
    check_env(env(backfill=backfill).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("backfill", ["none", "easy"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_policy_gives_the_same_schedule_as_in_the_simulator(backfill: str, seed: int):
    jobs = log(seed=seed)
    weights = np.random.default_rng(seed).standard_normal(WEIGHTS) * 0.3
    matrix, bias, output = np.split(weights, [FEATURES * HIDDEN, (FEATURES + 1) * HIDDEN])
    envs = ScheduleBatch(SchedulingRules(PROCS, backfill=backfill), envs=1, length=len(jobs), max_jobs=len(jobs))
    envs.reset([admit(jobs, PROCS).records])
    rewards = 0.0
    while not envs.over.all():
        logits = np.maximum(envs.observations[0] @ matrix.reshape(FEATURES, HIDDEN) + bias, 0) @ output
        envs.step(np.array([np.argmax(np.where(envs.masks[0], logits, -np.inf))]))
        rewards += envs.rewards[0]
    expected = simulate(jobs, PROCS, learned(weights), backfill)
    assert envs.batch.jobs["start_s"][0].tolist() == expected.start_s.tolist()
    # The rewards add up to minus the mean of wait / max(run, 10).
    assert rewards == pytest.approx(-(expected.wait_s / np.maximum(expected.run_s, 10)).mean())


def test_an_episode_repeats_by_seed():
    first, second = env(), env()
    assert (first.reset(seed=7)[0] == second.reset(seed=7)[0]).all()
    assert first.reset(seed=7)[1]["first"] != first.reset(seed=8)[1]["first"]


def test_terminated_is_not_truncated():
    complete = env()
    complete.reset(seed=0)
    terminated = truncated = False
    steps = 0
    while not terminated:
        _, _, terminated, truncated, info = complete.step(0)
        steps += 1
    assert (steps, truncated) == (60, False)
    assert info["bounded_slowdown"] >= 1
    short = env(max_steps=5)
    short.reset(seed=0)
    outcomes = [short.step(0)[2:4] for _ in range(5)]
    assert outcomes[-1] == (False, True)
    assert outcomes[-2] == (False, False)


def test_an_invalid_action_selects_the_first_job():
    valid, invalid = env(), env()
    valid.reset(seed=3)
    _, info = invalid.reset(seed=3)
    row = int(np.flatnonzero(~info["action_mask"])[0])
    outcomes = [valid.step(0), invalid.step(row)]
    assert (outcomes[0][0] == outcomes[1][0]).all()
    assert [outcome[4]["invalid"] for outcome in outcomes] == [False, True]


def test_an_observation_of_a_long_queue_has_the_oldest_and_the_smallest_jobs():
    n = 12
    jobs = Jobs.build([0, *range(1, n)], [1000] + [5] * (n - 1), request_s=range(1000, 1000 - n, -1), cpus=[PROCS] * n)
    envs = ScheduleBatch(SchedulingRules(PROCS), envs=1, length=n, max_jobs=4)
    envs.reset([admit(jobs, PROCS).records])
    envs.step(np.array([0]))  # the first job starts, and the second is alone in the queue
    envs.step(np.array([0]))  # the second is selected and blocks until 1,000 s, when ten jobs wait
    assert envs.results.positions[0].tolist() == [0, 1, 9, 8]
    assert envs.masks[0].all()


def test_an_episode_begins_with_the_job_of_the_log_that_was_asked_for():
    """Jobs that cannot run were not counted: with two of them before it, job 4 was job 6."""
    jobs = Jobs.build(np.arange(8.0), np.arange(8.0) + 100, request_s=np.arange(8.0) + 100, cpus=[9, 9] + 6 * [1])
    register()
    episode = gymnasium.make(ID, jobs=jobs, procs=4, length=2)
    _, info = episode.reset(options={"first": 4})
    assert info["first"] == 4
    assert episode.unwrapped.batch.batch.jobs["run_s"][0].tolist() == [104, 105]
    assert episode.reset(options={"first": 0})[1]["first"] == 2
    with pytest.raises(SettingsError, match="first: 7 leaves 1 jobs of the log; an episode has 2"):
        episode.reset(options={"first": 7})
