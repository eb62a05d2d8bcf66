"""Training learns, repeats by seed, and survives being killed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clustertwin.core.errors import InputError, SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import policy
from clustertwin.workload.policies.learned import FEATURES, ORDERS, WEIGHTS, beginner, kernel, learned
from clustertwin.workload.rl import checkpoint
from clustertwin.workload.rl.evolve import EvolveSettings
from clustertwin.workload.rl.ppo import Actor, Ppo, PpoSettings
from clustertwin.workload.rl.sequences import pool
from clustertwin.workload.rl.train import Round, TrainSettings, ranges, train
from clustertwin.workload.rl.worth import Rules, slowdowns
from clustertwin.workload.simulator.intake import take_in

PROCS = 16
RULES = Rules(PROCS)
TINY = TrainSettings(
    ppo_rounds=2, evolve_rounds=2, length=64, evolve_length=64, judged_on=2, judge_every=1, start="order",
    evolve=EvolveSettings(pairs=2, sequences=1), lead_rounds=2, lead=EvolveSettings(pairs=2, sequences=1, noise=0.5),
)  # fmt: skip


@pytest.fixture(scope="module")
def load():
    rng = np.random.default_rng(0)
    n = 1500
    run_s = rng.lognormal(4, 2, n).round() + 1
    jobs = Jobs.build(np.cumsum(rng.exponential(90, n)), run_s, request_s=run_s, cpus=2 ** rng.integers(0, 5, n))
    return take_in(jobs, PROCS).load


def test_the_actor_and_the_compiled_policy_are_one():
    actor = Actor(np.random.default_rng(1).standard_normal(WEIGHTS))
    x = np.random.default_rng(0).random(FEATURES).astype(np.float32)
    logit = actor(torch.from_numpy(x)[None], torch.tensor([True]))
    assert kernel(tuple(x.astype(float)), actor.vector()) == pytest.approx(logit.item(), rel=1e-5)


@pytest.mark.parametrize(("order", "name"), [(ORDERS[0], "sjf"), (ORDERS[1], "smallest")])
def test_a_beginner_schedules_about_as_the_order_it_begins_with(load, order: int, name: str):
    mine = learned(beginner(order, np.random.default_rng(0)))
    found = slowdowns([mine, policy(name), policy("fcfs")], [load], RULES)[:, 0]
    assert abs(found[0] - found[1]) < 0.2 * (found[2] - found[1])


@pytest.mark.slow
def test_ppo_learns(load):
    ignorant = beginner(ORDERS[0], np.random.default_rng(0), sharpness=0.0)
    learner = Ppo(pool(load, 128), RULES, PpoSettings(envs=8), ignorant, seed=0)
    before = learner.roll_out(np.random.default_rng(99)).ratios
    for i in range(12):
        learner.iterate(np.random.default_rng(i))
    after = learner.roll_out(np.random.default_rng(99)).ratios
    assert np.exp(np.log(after / before).mean()) < 0.7


@pytest.mark.slow
def test_a_killed_run_goes_on_as_if_nothing_had_happened(load, tmp_path: Path):
    whole = train(load, RULES, TINY, tmp_path / "whole.safetensors")

    class Killed(Exception):
        pass

    def kill_in(stage: str):
        def report(entry: Round) -> None:
            if entry.stage == stage:
                raise Killed

        return report

    out = tmp_path / "cut.safetensors"
    for stage in ("lead", "ppo", "evolve"):
        with pytest.raises(Killed):
            train(load, RULES, TINY, out, report=kill_in(stage))
    cut = train(load, RULES, TINY, out)
    assert [(r.stage, r.number, r.ratio) for r in cut.rounds] == [(r.stage, r.number, r.ratio) for r in whole.rounds]
    assert (cut.weights == whole.weights).all()


@pytest.mark.slow
def test_a_trained_file_is_a_policy(load, tmp_path: Path):
    out = tmp_path / "mine.safetensors"
    trained = train(load, RULES, TINY, out)
    mine = policy(str(out))
    assert mine.name == "mine"
    judged = slowdowns([mine, policy("sjf")], [load[:200]], RULES)
    assert np.isfinite(judged).all()
    assert (mine.weights == trained.weights).all()


@pytest.mark.slow
def test_a_run_for_another_machine_is_not_gone_on_with(load, tmp_path: Path):
    out = tmp_path / "run.safetensors"
    train(load, RULES, TINY, out)
    with pytest.raises(SettingsError, match="another machine"):
        train(load, Rules(PROCS, backfill="easy"), TINY, out)


def test_what_is_no_checkpoint_is_named(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"not tensors at all")
    with pytest.raises(InputError, match=r"x\.safetensors"):
        checkpoint.read(path)
    with pytest.raises(InputError, match=r"x\.safetensors"):
        policy(str(path))


def test_ranges_of_held_out_jobs():
    assert ranges(["0:10", "20:30"]) == [(0, 10), (20, 30)]
    with pytest.raises(SettingsError, match="FIRST:LAST"):
        ranges(["ten"])
