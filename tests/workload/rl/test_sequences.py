import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import SettingsError
from clustertwin.workload.rl.sequences import pool
from clustertwin.workload.simulator.machine import JOB


def load(n: int = 1000):
    jobs = np.zeros(n, JOB)
    jobs["submit_s"] = np.arange(n) ** 1.5
    jobs["run_s"] = jobs["request_s"] = jobs["estimate_s"] = np.arange(n) + 1  # tells a job from all others
    jobs["procs"] = 1
    return jobs


@given(seed=st.integers(0, 100), first=st.integers(0, 800))
def test_what_is_held_out_is_never_drawn(seed: int, first: int):
    held_out = range(first, first + 100)
    drawn = pool(load(), 200, [(first, first + 100)]).draw(np.random.default_rng(seed))
    assert len(drawn) == 200
    assert not set(held_out) & {int(run_s) - 1 for run_s in drawn["run_s"]}


def test_a_sequence_keeps_the_gaps_of_its_blocks():
    jobs = load()
    drawn = pool(jobs, 200).draw(np.random.default_rng(0))
    index = drawn["run_s"].astype(int) - 1
    together = np.flatnonzero(np.diff(index) == 1)
    gaps_s = np.diff(drawn["submit_s"])[together]
    assert gaps_s == pytest.approx(np.diff(jobs["submit_s"])[index[together]])
    assert (np.diff(drawn["submit_s"]) >= 0).all()


def test_the_same_seed_draws_the_same_sequence():
    jobs = pool(load(), 100)
    assert (jobs.draw(np.random.default_rng(3)) == jobs.draw(np.random.default_rng(3))).all()


def test_too_little_left_to_train_on_is_refused():
    with pytest.raises(SettingsError, match="hold out less"):
        pool(load(), 100, [(0, 990)])
