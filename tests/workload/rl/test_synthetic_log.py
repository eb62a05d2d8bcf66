"""Synthetic training jobs are not generated from held-out jobs."""

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.rl.synthetic_log import synthetic_log, without_held_out

HELD_OUT = [(20, 40), (60, 70)]


@pytest.fixture
def log() -> Jobs:
    """A hundred jobs; only the held-out ones have size 7."""
    cpus = np.ones(100)
    for first, last in HELD_OUT:
        cpus[first:last] = 7
    return Jobs.build(np.arange(100) ** 1.5, np.arange(100) + 1.0, cpus=cpus)


def test_the_time_of_held_out_jobs_is_cut_out(log: Jobs):
    jobs = without_held_out(log, HELD_OUT)
    assert len(jobs) == 70
    assert jobs.interval_s[20] == pytest.approx(log.interval_s[40])
    assert jobs.submit_s[0] == log.submit_s[0]


@pytest.mark.parametrize("generator", ["bootstrap", "crossover"])
def test_a_generator_does_not_see_held_out_jobs(log: Jobs, generator: str):
    jobs = synthetic_log(log, HELD_OUT, generator, 300, seed=1)
    assert len(jobs) == 300
    assert 7 not in jobs.cpus


def test_the_same_seed_gives_the_same_jobs(log: Jobs):
    first, again, other = (synthetic_log(log, [], "bootstrap", 50, seed) for seed in (1, 1, 2))
    assert (first.run_s == again.run_s).all()
    assert (first.run_s != other.run_s).any()


def test_holding_out_all_jobs_is_an_error(log: Jobs):
    with pytest.raises(SettingsError, match="held out"):
        without_held_out(log, [(0, 100)])
