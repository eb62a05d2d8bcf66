import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import SettingsError
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
