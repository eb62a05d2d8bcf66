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
from clustertwin.workload.rl.training_sequences import OtherMachine, TrainingData, draw_in_turn, training_machines
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


@pytest.mark.medium
@pytest.mark.parametrize(("feature", "name"), [(ORDER_FEATURES[0], "sjf"), (ORDER_FEATURES[1], "smallest")])
def test_initial_weights_schedule_nearly_like_their_order(data: TrainingData, feature: int, name: str):
    initial = learned(initial_weights(feature, np.random.default_rng(0)))
    policies = [initial, find_policy(name), find_policy("fcfs")]
    slowdown, order, fcfs = mean_slowdowns(policies, [data.records], RULES)[:, 0]
    assert abs(slowdown - order) < 0.2 * (fcfs - order)


@pytest.mark.slow
def test_ppo_learns(data: TrainingData):
    weights = initial_weights(ORDER_FEATURES[0], np.random.default_rng(0), sharpness=0.0)
    learner = Ppo(training_machines(data, RULES, 128), PpoSettings(num_envs=8), weights, seed=0)
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
    assert values.keys() == {"data", "range", "settings", "rules", "best_ratio", "seconds", "rounds"}
    assert values["data"].keys() == {"log", "held_out", "further"}
    assert values["data"]["log"].keys() == {"jobs", "sha256"}
    assert values["rules"] == {"procs": PROCS, "gpus": 0, "backfill": "none", "hold": None, "bound_s": 10.0}
    assert values["rounds"][0].keys() == {"stage", "number", "ratio", "judged_ratio", "seconds"}
    evolution_keys = {"pairs", "sequences", "noise", "rate", "reference"}
    assert values["settings"].keys() == {
        "ppo_rounds", "evolve_rounds", "length", "evolve_length", "judged_on", "judge_every", "seed", "start",
        "evolve", "lead_rounds", "lead",
    }  # fmt: skip
    assert values["settings"]["evolve"].keys() == values["settings"]["lead"].keys() == evolution_keys


@pytest.mark.slow
def test_the_keys_of_ppos_arrays_do_not_change(data: TrainingData):
    weights = initial_weights(ORDER_FEATURES[0], np.random.default_rng(0))
    learner = Ppo(training_machines(data, RULES, 64), PpoSettings(num_envs=1, num_shards=1), weights, seed=0)
    learner.iterate(np.random.default_rng(0))
    names = ["step", "exp_avg", "exp_avg_sq"]
    assert sorted(learner.arrays()) == sorted(
        [f"net.{i}" for i in range(9)] + [f"adam.{i}.{name}" for i in range(9) for name in names]
    )


ONE_ROUND = replace(TINY, ppo_rounds=0, evolve_rounds=1, lead_rounds=0)


def other_log(data: TrainingData) -> TrainingData:
    records = data.records.copy()
    records["run_s"][5] += 1
    return replace(data, records=records)


def elsewhere(data: TrainingData) -> OtherMachine:
    """The same jobs on a machine four times as large, where each takes four times as many processors."""
    records = data.records.copy()
    records["procs"] *= 4
    return OtherMachine(records, 4 * PROCS)


def test_sequences_of_several_machines_are_drawn_in_turn_and_keep_their_machine(data: TrainingData):
    machines = training_machines(replace(data, others=[elsewhere(data)]), RULES, 64)
    drawn = draw_in_turn(machines, 5, np.random.default_rng(0))
    assert [(rules.procs, len(sequences)) for rules, sequences in drawn] == [(PROCS, 3), (4 * PROCS, 2)]
    assert all((sequence["procs"] % 4 == 0).all() for sequence in drawn[1][1])
    assert [len(sequences) for _, sequences in draw_in_turn(machines, 1, np.random.default_rng(0))] == [1, 1]


@pytest.mark.slow
def test_a_policy_is_trained_across_machines_and_knows_its_range(data: TrainingData, tmp_path: Path):
    out = tmp_path / "both.safetensors"
    both = replace(data, others=[elsewhere(data)])
    trained = train(both, RULES, TINY, out)
    assert {entry.stage for entry in trained.rounds} == {"lead", "ppo", "evolve"}
    assert not np.array_equal(trained.weights, train(data, RULES, TINY, tmp_path / "one.safetensors").weights)
    policy = find_policy(str(out))
    assert (policy.trained.procs, policy.trained.most_procs) == (PROCS, 4 * PROCS)
    assert not policy.trained.outside(elsewhere(data).records, 4 * PROCS)
    phrase, *_ = policy.trained.outside(data.records, 9 * PROCS)
    assert "in training it had 16 to 64" in phrase
    assert (train(both, RULES, TINY, out).weights == trained.weights).all()


def test_a_run_for_another_machine_is_not_resumed(data: TrainingData, tmp_path: Path):
    out = tmp_path / "run.safetensors"
    train(data, RULES, ONE_ROUND, out)
    with pytest.raises(SettingsError, match=r"another machine or backfilling \(backfill none, now easy\)"):
        train(data, SchedulingRules(PROCS, backfill="easy"), ONE_ROUND, out)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_log, r"another log \(1500 jobs with SHA-256 \w+, now 1500 jobs"),
        (lambda data: replace(data, held_out=[(0, 50)]), r"other held-out jobs \(none, now 0:50\)"),
        (lambda data: replace(data, further=[data.records[:100]]), r"other synthetic jobs \(none, now 100 jobs"),
        (lambda data: replace(data, others=[elsewhere(data)]), r"other logs of other machines \(none, now 1500 jobs"),
    ],
)
def test_a_run_on_other_jobs_is_not_resumed(data: TrainingData, tmp_path: Path, change, reason: str):
    out = tmp_path / "run.safetensors"
    train(data, RULES, ONE_ROUND, out)
    before = out.read_bytes()
    with pytest.raises(SettingsError, match=f"{reason}.*another --out.*--force"):
        train(change(data), RULES, ONE_ROUND, out)
    assert out.read_bytes() == before


def test_a_run_with_other_settings_is_not_resumed(data: TrainingData, tmp_path: Path):
    out = tmp_path / "run.safetensors"
    train(data, RULES, ONE_ROUND, out)
    more = replace(ONE_ROUND, evolve_rounds=2, validation_sequences=3)
    reason = r"other settings \(evolve_rounds 1, now 2, validation_sequences 2, now 3\)"
    with pytest.raises(SettingsError, match=reason):
        train(data, RULES, more, out)


def test_a_restarted_run_replaces_the_run_of_another_log(data: TrainingData, tmp_path: Path):
    out = tmp_path / "run.safetensors"
    train(data, RULES, ONE_ROUND, out)
    fresh = train(other_log(data), RULES, ONE_ROUND, tmp_path / "fresh.safetensors")
    restarted = train(other_log(data), RULES, ONE_ROUND, out, resume=False)
    assert (restarted.weights == fresh.weights).all()


def without_data(path: Path) -> None:
    """Make a checkpoint of the versions that did not record the log."""
    arrays, values = checkpoint.read(path)
    checkpoint.save(path, arrays, {key: value for key, value in values.items() if key != "data"})


def test_an_old_checkpoint_is_resumed_only_on_a_log_that_gives_its_recorded_result(data: TrainingData, tmp_path: Path):
    out = tmp_path / "run.safetensors"
    trained = train(data, RULES, ONE_ROUND, out)
    without_data(out)
    assert (train(data, RULES, ONE_ROUND, out).weights == trained.weights).all()
    reversed_jobs = data.records.copy()
    reversed_jobs["procs"] = reversed_jobs["procs"][::-1]
    with pytest.raises(SettingsError, match="does not record its log"):
        train(replace(data, records=reversed_jobs), RULES, ONE_ROUND, out)


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
