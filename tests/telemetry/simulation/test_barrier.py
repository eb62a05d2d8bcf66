"""MPI ranks: known answers first, then the effect of slow and hung ranks on the others."""

import numpy as np
import pytest

from clustertwin.telemetry.simulation.anomalies import hung_rank, misbound, straggler
from clustertwin.telemetry.simulation.barrier import draw_ranks, wait_fractions

STEP_S = (0.3, 1.2)


def mean_wait(step_s, ranks):
    """The fraction of time that a healthy rank waits, from the expected maximum of uniform draws."""
    low_s, high_s = step_s
    return 1 - (low_s + high_s) / 2 / (low_s + (high_s - low_s) * ranks / (ranks + 1))


def test_equal_ranks_never_wait():
    assert wait_fractions((1.0, 1.0), np.ones(4), 30, np.random.default_rng(0)) == pytest.approx(0, abs=1e-9)


def test_the_others_wait_half_of_the_time_for_one_twice_as_slow():
    waits = wait_fractions((1.0, 1.0), np.array([2.0, 1.0, 1.0]), 30, np.random.default_rng(0))
    assert waits[0] == pytest.approx(0, abs=1e-9)
    assert waits[1] == pytest.approx([0, 1] * 15, abs=1e-9)  # a second of work, a second of waiting


@pytest.mark.parametrize("ranks", [2, 8, 32])
def test_waiting_grows_with_the_number_of_ranks_as_order_statistics_say(ranks):
    waits = wait_fractions(STEP_S, np.ones(ranks), 6000, np.random.default_rng(1))
    assert waits.mean() == pytest.approx(mean_wait(STEP_S, ranks), abs=0.01)


def test_two_ranks_wait_in_turns():
    first, second = wait_fractions(STEP_S, np.ones(2), 6000, np.random.default_rng(2))
    assert np.corrcoef(first, second)[0, 1] < -0.2


def test_ticks_mix_computing_and_waiting(signatures):
    ticks = draw_ranks(signatures.barrier, np.ones(2), 4000, np.random.default_rng(3))
    wait = mean_wait(STEP_S, 2)
    assert ticks[..., 1].mean() / 100 == pytest.approx(0.5 * wait + 0.02 * (1 - wait), abs=0.01)


def test_a_straggler_computes_while_its_peers_wait(signatures):
    ticks = straggler(2.0)(signatures, 8, 600, 3, np.random.default_rng(4))
    system = ticks[..., 1].mean(axis=1)
    assert system.argmin() == 3
    assert np.delete(system, 3).min() > 4 * system[3]


def test_a_hung_rank_idles_while_its_peers_poll(signatures):
    ticks = hung_rank(signatures, 4, 300, 1, np.random.default_rng(5))
    assert ticks[1, :, 3].mean() > 95
    assert ticks[[0, 2, 3], :, 1].mean() == pytest.approx(50, abs=1)


def test_misbound_ranks_leave_all_threads_but_one_idle(signatures):
    ticks = misbound(signatures, 8, 300, 0, np.random.default_rng(6))
    assert ticks[0, :, 3].mean() == 0
    assert ticks[1:, :, 3].mean() > 95
