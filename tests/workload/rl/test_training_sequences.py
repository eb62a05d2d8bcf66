import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clustertwin as ct
from clustertwin.cli import sched_train
from clustertwin.cli.sched_options import TrainOptions
from clustertwin.core.errors import SettingsError
from clustertwin.workload.formats import write
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import learned
from clustertwin.workload.rl import policy_training
from clustertwin.workload.rl.training_sequences import TrainingData, sequence_pool
from clustertwin.workload.simulator.machine_state import JOB


def records(n: int = 1000):
    jobs = np.zeros(n, JOB)
    jobs["submit_s"] = np.arange(n) ** 1.5
    jobs["run_s"] = jobs["request_s"] = jobs["estimate_s"] = np.arange(n) + 1  # identifies each job
    jobs["procs"] = 1
    return jobs


@given(seed=st.integers(0, 100), first=st.integers(0, 800))
def test_held_out_jobs_are_never_drawn(seed: int, first: int):
    held_out = range(first, first + 100)
    drawn = sequence_pool(TrainingData(records(), [(first, first + 100)]), 200).draw(np.random.default_rng(seed))
    assert len(drawn) == 200
    assert not set(held_out) & {int(run_s) - 1 for run_s in drawn["run_s"]}


def test_a_sequence_keeps_the_gaps_of_its_blocks():
    jobs = records()
    drawn = sequence_pool(TrainingData(jobs), 200).draw(np.random.default_rng(0))
    index = drawn["run_s"].astype(int) - 1
    adjacent = np.flatnonzero(np.diff(index) == 1)
    gaps_s = np.diff(drawn["submit_s"])[adjacent]
    assert gaps_s == pytest.approx(np.diff(jobs["submit_s"])[index[adjacent]])
    assert (np.diff(drawn["submit_s"]) >= 0).all()


def test_the_same_seed_draws_the_same_sequence():
    pool = sequence_pool(TrainingData(records()), 100)
    assert (pool.draw(np.random.default_rng(3)) == pool.draw(np.random.default_rng(3))).all()


def test_too_few_jobs_to_train_on_is_an_error():
    with pytest.raises(SettingsError, match="hold out fewer jobs"):
        sequence_pool(TrainingData(records(), [(0, 990)]), 100)


def log_with_refused_jobs() -> Jobs:
    """The first two of six jobs are larger than a machine of four cpus."""
    return Jobs.build(np.arange(6.0), np.ones(6), request_s=np.ones(6), cpus=[9, 9, 1, 1, 1, 1])


def test_refused_jobs_do_not_move_the_held_out_jobs(monkeypatch, tmp_path):
    """Ranges counted the jobs that can run: two of the held-out jobs were trained on, and two others were not."""
    seen = []
    monkeypatch.setattr(policy_training, "train", lambda data, *_: seen.append(data))
    monkeypatch.setattr(learned, "read_learned", lambda path: None)
    ct.train_policy(log_with_refused_jobs(), tmp_path / "policy.safetensors", hold_out=[(3, 5)], procs=4)
    monkeypatch.setattr(sched_train, "train", lambda data, *_: seen.append(data))
    write(log_with_refused_jobs(), tmp_path / "log.swf")
    options = TrainOptions(tmp_path / "log.swf", tmp_path / "out", procs=4, ppo_rounds=0, hold_out=["3:5"])
    sched_train.run_training(options)
    for data in seen:
        (held_out,) = data.held_out
        assert data.records["submit_s"][slice(*held_out)].tolist() == [3, 4]
    assert len(seen) == 2
