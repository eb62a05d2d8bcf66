"""Training improves a policy, repeats by seed, and resumes after it was killed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clustertwin.core.errors import InputError, SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import find_policy
from clustertwin.workload.policies.learned import (
    FEATURES,
    ORDER_FEATURES,
    WEIGHTS,
    initial_weights,
    kernel,
    learned,
)
from clustertwin.workload.rl import checkpoint
from clustertwin.workload.rl.evolution_strategies import EvolutionSettings
from clustertwin.workload.rl.policy_evaluation import mean_slowdowns
from clustertwin.workload.rl.policy_training import TrainingRound, TrainSettings, parse_ranges, train
from clustertwin.workload.rl.ppo import Actor, Ppo, PpoSettings, generalized_advantages
from clustertwin.workload.rl.training_sequences import TrainingData, sequence_pool
from clustertwin.workload.simulator import SchedulingRules
from clustertwin.workload.simulator.admission import admit

PROCS = 16
RULES = SchedulingRules(PROCS)
TINY = TrainSettings(
    ppo_rounds=2, evolve_rounds=2, ppo_length=64, evolve_length=64, validation_sequences=2, validate_every=1,
    start="order", evolve=EvolutionSettings(pairs=2, sequences=1), lead_rounds=2,
    lead=EvolutionSettings(pairs=2, sequences=1, noise_std=0.5),
)  # fmt: skip


@pytest.fixture(scope="module")
def data() -> TrainingData:
    rng = np.random.default_rng(0)
    n = 1500
    run_s = rng.lognormal(4, 2, n).round() + 1
    jobs = Jobs.build(np.cumsum(rng.exponential(90, n)), run_s, request_s=run_s, cpus=2 ** rng.integers(0, 5, n))
    return TrainingData(admit(jobs, PROCS).records)


def test_the_actor_and_the_compiled_policy_agree():
    actor = Actor(np.random.default_rng(1).standard_normal(WEIGHTS))
    x = np.random.default_rng(0).random(FEATURES).astype(np.float32)
    logit = actor(torch.from_numpy(x)[None], torch.tensor([True]))
    assert kernel(tuple(x.astype(float)), actor.vector()) == pytest.approx(logit.item(), rel=1e-5)


def test_advantages_without_lambda_are_td_errors_and_with_lambda_1_are_returns_minus_values():
    rewards, values = torch.tensor([[-1.0], [-2.0], [-4.0]]), torch.tensor([[1.0], [3.0], [5.0]])
    active = torch.tensor([[True], [True], [True]])
    assert generalized_advantages(rewards, values, active, 0.0).flatten().tolist() == [1.0, 0.0, -9.0]
    assert generalized_advantages(rewards, values, active, 1.0).flatten().tolist() == [-8.0, -9.0, -9.0]


def test_steps_after_the_end_of_an_episode_have_no_advantage_and_no_value():
    rewards, values = torch.tensor([[-1.0], [0.0]]), torch.tensor([[1.0], [7.0]])
    active = torch.tensor([[True], [False]])
    assert generalized_advantages(rewards, values, active, 0.9).flatten().tolist() == [-2.0, 0.0]


@pytest.mark.parametrize(("feature", "name"), [(ORDER_FEATURES[0], "sjf"), (ORDER_FEATURES[1], "smallest")])
def test_initial_weights_schedule_nearly_like_their_order(data: TrainingData, feature: int, name: str):
    initial = learned(initial_weights(feature, np.random.default_rng(0)))
    policies = [initial, find_policy(name), find_policy("fcfs")]
    slowdown, order, fcfs = mean_slowdowns(policies, [data.records], RULES)[:, 0]
    assert abs(slowdown - order) < 0.2 * (fcfs - order)


@pytest.mark.slow
def test_ppo_learns(data: TrainingData):
    weights = initial_weights(ORDER_FEATURES[0], np.random.default_rng(0), sharpness=0.0)
    learner = Ppo(sequence_pool(data, 128), RULES, PpoSettings(num_envs=8), weights, seed=0)
    before = learner.collect_rollout(np.random.default_rng(99)).slowdown_ratios
    for i in range(12):
        learner.iterate(np.random.default_rng(i))
    after = learner.collect_rollout(np.random.default_rng(99)).slowdown_ratios
    assert np.exp(np.log(after / before).mean()) < 0.7


@pytest.mark.slow
def test_a_killed_run_resumes_with_the_same_result(data: TrainingData, tmp_path: Path):
    uncut = train(data, RULES, TINY, tmp_path / "uncut.safetensors")

    class Killed(Exception):
        pass

    def kill_in(stage: str):
        def report(entry: TrainingRound) -> None:
            if entry.stage == stage:
                raise Killed

        return report

    out = tmp_path / "cut.safetensors"
    for stage in ("lead", "ppo", "evolve"):
        with pytest.raises(Killed):
            train(data, RULES, TINY, out, report=kill_in(stage))
    cut = train(data, RULES, TINY, out)
    assert [(r.stage, r.number, r.ratio) for r in cut.rounds] == [(r.stage, r.number, r.ratio) for r in uncut.rounds]
    assert (cut.weights == uncut.weights).all()


@pytest.mark.slow
def test_a_trained_file_is_a_policy(data: TrainingData, tmp_path: Path):
    out = tmp_path / "mine.safetensors"
    trained = train(data, RULES, TINY, out)
    policy = find_policy(str(out))
    assert policy.name == "mine"
    assert np.isfinite(mean_slowdowns([policy], [data.records[:200]], RULES)).all()
    assert (policy.weights == trained.weights).all()


def test_the_keys_of_a_checkpoint_do_not_change(data: TrainingData, tmp_path: Path):
    """Files of earlier versions must open, and earlier versions must be able to read new files."""
    out = tmp_path / "run.safetensors"
    train(data, RULES, replace(TINY, ppo_rounds=0, evolve_rounds=1, lead_rounds=0), out)
    arrays, values = checkpoint.read(out)
    assert arrays.keys() == {"policy", "centre", "first", "second"}
    assert values.keys() == {"settings", "rules", "best_ratio", "seconds", "rounds"}
    assert values["rules"] == {"procs": PROCS, "gpus": 0, "backfill": "none", "hold": None, "bound_s": 10.0}
    assert values["rounds"][0].keys() == {"stage", "number", "ratio", "judged_ratio", "seconds"}
    evolution_keys = {"pairs", "sequences", "noise", "rate", "reference"}
    assert values["settings"].keys() == {
        "ppo_rounds", "evolve_rounds", "length", "evolve_length", "judged_on", "judge_every", "seed", "start",
        "evolve", "lead_rounds", "lead",
    }  # fmt: skip
    assert values["settings"]["evolve"].keys() == values["settings"]["lead"].keys() == evolution_keys


def test_the_keys_of_ppos_arrays_do_not_change(data: TrainingData):
    weights = initial_weights(ORDER_FEATURES[0], np.random.default_rng(0))
    learner = Ppo(sequence_pool(data, 64), RULES, PpoSettings(num_envs=1, num_shards=1), weights, seed=0)
    learner.iterate(np.random.default_rng(0))
    names = ["step", "exp_avg", "exp_avg_sq"]
    assert sorted(learner.arrays()) == sorted(
        [f"net.{i}" for i in range(9)] + [f"adam.{i}.{name}" for i in range(9) for name in names]
    )


@pytest.mark.slow
def test_a_run_for_another_machine_is_not_resumed(data: TrainingData, tmp_path: Path):
    out = tmp_path / "run.safetensors"
    train(data, RULES, TINY, out)
    with pytest.raises(SettingsError, match="another machine"):
        train(data, SchedulingRules(PROCS, backfill="easy"), TINY, out)


def test_the_error_for_a_file_that_is_not_a_checkpoint_names_it(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"not tensors at all")
    with pytest.raises(InputError, match=r"x\.safetensors"):
        checkpoint.read(path)
    with pytest.raises(InputError, match=r"x\.safetensors"):
        find_policy(str(path))


def test_ranges_of_held_out_jobs():
    assert parse_ranges(["0:10", "20:30"]) == [(0, 10), (20, 30)]
    with pytest.raises(SettingsError, match="FIRST:LAST"):
        parse_ranges(["ten"])
