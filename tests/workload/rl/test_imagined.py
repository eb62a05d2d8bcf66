"""Jobs to train on that never were: what is held out stays out of them."""

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.rl.imagined import imagined, usable

HELD_OUT = [(20, 40), (60, 70)]


@pytest.fixture
def log() -> Jobs:
    """A hundred jobs, of which those held out are the only ones of size 7."""
    cpus = np.ones(100)
    for first, last in HELD_OUT:
        cpus[first:last] = 7
    return Jobs.build(np.arange(100) ** 1.5, np.arange(100) + 1.0, cpus=cpus)


def test_time_closes_over_what_is_held_out(log: Jobs):
    left = usable(log, HELD_OUT)
    assert len(left) == 70
    assert left.interval_s[20] == pytest.approx(log.interval_s[40])
    assert left.submit_s[0] == log.submit_s[0]


@pytest.mark.parametrize("generator", ["bootstrap", "crossover"])
def test_a_generator_never_sees_what_is_held_out(log: Jobs, generator: str):
    made = imagined(log, HELD_OUT, generator, 300, seed=1)
    assert len(made) == 300
    assert 7 not in made.cpus


def test_the_same_seed_imagines_the_same_jobs(log: Jobs):
    first, again, other = (imagined(log, [], "bootstrap", 50, seed) for seed in (1, 1, 2))
    assert (first.run_s == again.run_s).all()
    assert (first.run_s != other.run_s).any()


def test_nothing_left_to_learn_from_is_refused(log: Jobs):
    with pytest.raises(SettingsError, match="held out"):
        usable(log, [(0, 100)])
