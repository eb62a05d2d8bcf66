"""The environment is the simulator: same rules, same schedules, whoever decides."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies.learned import FEATURES, HIDDEN, WEIGHTS, learned
from clustertwin.workload.simulator import simulate
from clustertwin.workload.simulator.env import ID, register
from clustertwin.workload.simulator.intake import take_in
from clustertwin.workload.simulator.vector import Schedules

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
def test_gymnasium_finds_nothing_to_complain_about(backfill: str):
    check_env(env(backfill=backfill).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("backfill", ["none", "easy"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_kernel_gives_the_same_schedule_here_and_in_the_simulator(backfill: str, seed: int):
    jobs = log(seed=seed)
    weights = np.random.default_rng(seed).standard_normal(WEIGHTS) * 0.3
    matrix, bias, out = np.split(weights, [FEATURES * HIDDEN, (FEATURES + 1) * HIDDEN])
    schedules = Schedules(PROCS, easy=backfill == "easy", envs=1, length=len(jobs), view=len(jobs))
    schedules.reset([take_in(jobs, PROCS).load])
    rewards = 0.0
    while not schedules.over.all():
        score = np.maximum(schedules.seen[0] @ matrix.reshape(FEATURES, HIDDEN) + bias, 0) @ out
        schedules.step(np.array([np.argmax(np.where(schedules.mask[0], score, -np.inf))]))
        rewards += schedules.reward[0]
    expected = simulate(jobs, PROCS, learned(weights), backfill)
    assert schedules.jobs["start_s"][0].tolist() == expected.start_s.tolist()
    # What waiting cost, step by step, adds up to the mean of wait / max(run, 10).
    assert rewards == pytest.approx(-(expected.wait_s / np.maximum(expected.run_s, 10)).mean())


def test_an_episode_repeats_by_seed():
    one, other = env(), env()
    first, again = one.reset(seed=7)[0], other.reset(seed=7)[0]
    assert (first == again).all()
    assert one.reset(seed=7)[1]["first"] != one.reset(seed=8)[1]["first"]


def test_an_end_is_not_a_cut():
    whole = env()
    whole.reset(seed=0)
    terminated = truncated = False
    steps = 0
    while not terminated:
        _, _, terminated, truncated, info = whole.step(0)
        steps += 1
    assert (steps, truncated) == (60, False)
    assert info["bounded_slowdown"] >= 1
    short = env(max_steps=5)
    short.reset(seed=0)
    outcomes = [short.step(0)[2:4] for _ in range(5)]
    assert outcomes[-1] == (False, True)
    assert outcomes[-2] == (False, False)


def test_a_masked_choice_counts_as_the_first_and_is_told():
    picked, wrong = env(), env()
    picked.reset(seed=3)
    _, info = wrong.reset(seed=3)
    row = int(np.flatnonzero(~info["action_mask"])[0])
    seen = [picked.step(0), wrong.step(row)]
    assert (seen[0][0] == seen[1][0]).all()
    assert [outcome[4]["invalid"] for outcome in seen] == [False, True]


def test_more_jobs_than_the_view_show_the_oldest_and_the_smallest():
    n = 12
    jobs = Jobs.build([0, *range(1, n)], [1000] + [5] * (n - 1), request_s=range(1000, 1000 - n, -1), cpus=[PROCS] * n)
    schedules = Schedules(PROCS, envs=1, length=n, view=4)
    schedules.reset([take_in(jobs, PROCS).load])
    schedules.step(np.array([0]))  # the first starts, the second is alone
    schedules.step(np.array([0]))  # … and is picked; it blocks until 1,000 s, when ten wait
    assert schedules.places[0].tolist() == [0, 1, 9, 8]
    assert schedules.mask[0].all()
