import numpy as np
import pytest

from clustertwin.workload.generators.crossover.smoothing import SmoothingKernel, moved, widths
from clustertwin.workload.generators.job_rows import resolution_of


def test_a_width_is_half_the_distance_between_the_neighbours_within_bounds():
    values, group = np.array([100.0, 104, 112, 1000]), np.zeros(4, int)
    # The neighbours of 104 are 12 apart. For 1000, half of 888 is more than the largest move, a tenth of the value.
    assert widths(values, group, SmoothingKernel(), 0.0).tolist() == pytest.approx([2.0, 6.0, 11.2, 100.0])


def test_neighbours_of_another_group_do_not_count():
    assert widths(np.array([100.0, 101]), np.array([0, 1]), SmoothingKernel(), 0.0).tolist() == pytest.approx(
        [10.0, 10.1]
    )


def test_moves_keep_the_mean_and_stay_within_the_width():
    values, width = np.full(20_000, 50.0), np.full(20_000, 5.0)
    drawn = moved(values, width, 0.01, np.random.default_rng(0))
    assert np.abs(drawn - 50).max() <= 5.005
    assert drawn.mean() == pytest.approx(50, abs=0.1)


def test_zero_stays_zero_and_nothing_falls_below_it():
    drawn = moved(np.array([0.0, 1.0] * 500), np.full(1000, 9.0), 1.0, np.random.default_rng(0))
    assert drawn.min() >= 0
    assert np.all(drawn[::2] == 0)


def test_a_value_never_falls_below_its_floor_and_its_mean_stays():
    drawn = moved(np.full(20_000, 3.0), np.full(20_000, 9.0), 1.0, np.random.default_rng(0), least=1.0)
    assert drawn.min() == 1
    assert drawn.mean() == pytest.approx(3, abs=0.05)


def test_the_resolution_is_the_logs_own():
    assert resolution_of(np.array([1.0, 20.0])) == 1
    assert resolution_of(np.array([1.25])) == 0.01


def test_a_short_value_does_not_move_by_more_than_its_share():
    values = np.array([1.0, 2, 4, 4, 4, 100])
    found = widths(values, np.zeros(6, int), SmoothingKernel(short=0.25), 1.0)
    assert np.all(found[:5] <= 0.1 * values[:5] + 0.25 * values[:5] + 1e-9)
    assert found[5] >= 2  # a long value still moves by two steps or more
