from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.views.p_value import fit_exponential_tail, fit_pareto_tail


def test_continues_beyond_the_sample_of_an_exponential():
    sample = np.random.default_rng(0).exponential(size=200_000)
    survival = fit_pareto_tail(sample)
    x = np.array([1.0, 3.0, 5.0, 20.0])
    np.testing.assert_allclose(survival.surprise(x), x / np.log(10), rtol=0.1)


def test_estimates_the_shape_of_a_heavy_tail():
    from scipy.stats import genpareto

    sample = genpareto.rvs(0.3, size=100_000, random_state=1)
    survival = fit_pareto_tail(sample)
    assert survival.shape == pytest.approx(0.3, abs=0.08)
    assert survival.surprise(np.array([50.0]))[0] == pytest.approx(-genpareto.logsf(50, 0.3) / np.log(10), rel=0.15)


def test_the_p_value_is_the_rate_at_which_it_is_exceeded():
    rng = np.random.default_rng(2)
    survival = fit_pareto_tail(rng.gamma(2, size=20_000))
    surprise = survival.surprise(rng.gamma(2, size=200_000))
    assert (surprise > 3).mean() == pytest.approx(1e-3, rel=0.5)
    assert (surprise > 1).mean() == pytest.approx(1e-1, rel=0.1)


@given(st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=50, max_size=200))
def test_surprise_is_monotonic_and_finite(sample):
    survival = fit_pareto_tail(np.array(sample))
    surprise = survival.surprise(np.linspace(-2e3, 2e3, 400))
    assert np.isfinite(surprise).all()
    assert (np.diff(surprise) >= -1e-9).all()


def test_nan_stays_nan():
    assert np.isnan(fit_pareto_tail(np.arange(100.0)).surprise(np.array([np.nan]))).all()


@pytest.mark.parametrize("size", [100, 300, 3000])
def test_a_small_sample_does_not_underestimate_rare_values(size):
    """A surprise of 5.44, the bar for events on a node of 32 threads, has about that probability."""
    from scipy.stats import lognorm

    rng, truth = np.random.default_rng(size), lognorm(0.5)
    x = np.linspace(1, 400, 20_000)
    survivals = [fit_pareto_tail(truth.rvs(size, random_state=rng)) for _ in range(30)]
    probabilities = [truth.sf(x[np.searchsorted(survival.surprise(x), 5.44)]) for survival in survivals]
    assert np.mean(probabilities) < 3 * 10**-5.44


def test_the_maximum_of_several_p_values_is_calibrated_to_one():
    rng = np.random.default_rng(5)

    def highest(n: int) -> np.ndarray:
        return np.asarray(-np.log10(rng.random((n, 5)).min(1)))

    survival = fit_exponential_tail(highest(400))
    surprise = survival.surprise(highest(400_000))
    assert (surprise > 2).mean() == pytest.approx(1e-2, rel=0.5)
    assert (surprise > 4).mean() < 3e-4
    assert survival.surprise(np.array([12.0]))[0] > 9  # extreme values stay extreme


def test_a_sample_that_is_too_small_is_refused_with_its_size():
    with pytest.raises(SettingsError, match="3 normal windows are too few"):
        fit_pareto_tail(np.arange(3.0))
