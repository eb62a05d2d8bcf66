"""Continuations of weekly series: their centre, their width, and outages."""

import numpy as np
import pytest

from clustertwin.workload.generators.site_model.level_forecast import LevelForecast, without_outages


def draws(totals, weeks=10, count=300, seed=0):
    rng = np.random.default_rng(seed)
    fitted = LevelForecast.of(np.array(totals, dtype=float))
    return np.array([
        fitted.draw(rng.standard_normal(weeks), rng.standard_normal(weeks), rng) for _ in range(count)
    ])  # fmt: skip


def noisy(level, spread, seed=1):
    return np.exp(np.log(level) + spread * np.random.default_rng(seed).standard_normal(len(level)))


def test_a_steady_series_continues_at_its_level():
    made = draws(noisy(np.full(40, 500.0), 0.1))
    assert np.median(made) == pytest.approx(500, rel=0.05)


def test_after_a_change_of_regime_the_forecast_starts_from_the_new_level():
    made = draws(noisy(np.repeat([200.0, 800.0], 20), 0.1), weeks=2)
    assert np.median(made) > 600


def test_the_interval_of_a_noisy_series_is_wider():
    def width(totals):
        return np.diff(np.quantile(np.log(draws(totals)), [0.1, 0.9]))[0]

    assert width(noisy(np.full(40, 500.0), 0.5)) > 2 * width(noisy(np.full(40, 500.0), 0.1))


def test_two_weeks_give_a_wider_interval_than_forty():
    def width(weeks):
        return np.diff(np.quantile(np.log(draws(noisy(np.full(weeks, 500.0), 0.2))), [0.1, 0.9]))[0]

    assert width(2) > 1.3 * width(40)


@pytest.mark.medium
def test_intervals_of_eighty_per_cent_hold_most_weeks_of_a_drifting_series():
    """The truth is a random walk with noise that the model has not seen."""
    inside = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        level = np.cumsum(0.05 * rng.standard_normal(50))
        truth = 500 * np.exp(level + 0.15 * rng.standard_normal(50))
        low, high = np.quantile(draws(truth[:25], weeks=25, count=100, seed=seed), [0.1, 0.9], axis=0)
        inside.append(np.mean((truth[25:] >= low) & (truth[25:] <= high)))
    assert 0.7 <= np.mean(inside) <= 0.95


def test_a_week_of_an_outage_is_not_part_of_the_level_but_occurs_again():
    totals = noisy(np.full(40, 500.0), 0.1)
    totals[[10, 30]] = 5.0
    y, drops = without_outages(totals)
    assert len(drops) == 2
    assert y.min() > np.log(300)
    made = draws(totals)
    assert 0.01 < np.mean(made < 50) < 0.1


def test_one_week_is_enough_for_a_guess():
    made = draws([300.0])
    assert np.all(np.isfinite(made))
    assert np.median(made) == pytest.approx(300, rel=0.3)


def test_weeks_without_any_job_are_continued():
    assert np.all(np.isfinite(draws([0.0, 0.0, 0.0])))


def test_a_series_that_surprised_its_own_past_gets_wider_intervals():
    calm = noisy(np.full(40, 500.0), 0.1)
    jumping = noisy(np.repeat([200.0, 200.0, 200.0, 1500.0, 150.0, 900.0, 100.0, 1200.0], 5), 0.02)
    assert LevelForecast.calibrated(calm).widening < 1.2
    assert LevelForecast.calibrated(jumping).widening > 1.2
    assert LevelForecast.calibrated(calm[:4]).widening == 1.0


def test_a_forecast_stays_within_three_times_the_busiest_week():
    growing = np.array([1.0, 10.0, 100.0, 1000.0, 800.0, 1200.0])
    assert draws(growing, weeks=30).max() <= 3 * 1200
