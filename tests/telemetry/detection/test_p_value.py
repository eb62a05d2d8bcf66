from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.views.p_value import fit_exponential_tail, fit_pareto_tail


def test_goes_on_beyond_the_sample_as_the_exponential_does():
    sample = np.random.default_rng(0).exponential(size=200_000)
    survival = fit_pareto_tail(sample)
    x = np.array([1.0, 3.0, 5.0, 20.0])
    np.testing.assert_allclose(survival.surprise(x), x / np.log(10), rtol=0.1)


def test_finds_the_shape_of_a_heavy_tail():
    from scipy.stats import genpareto

    sample = genpareto.rvs(0.3, size=100_000, random_state=1)
    survival = fit_pareto_tail(sample)
    assert survival.shape == pytest.approx(0.3, abs=0.08)
    assert survival.surprise(np.array([50.0]))[0] == pytest.approx(-genpareto.logsf(50, 0.3) / np.log(10), rel=0.15)


def test_exceeds_a_level_as_often_as_it_says():
    rng = np.random.default_rng(2)
    survival = fit_pareto_tail(rng.gamma(2, size=20_000))
    surprise = survival.surprise(rng.gamma(2, size=200_000))
    assert (surprise > 3).mean() == pytest.approx(1e-3, rel=0.5)
    assert (surprise > 1).mean() == pytest.approx(1e-1, rel=0.1)


@given(st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=50, max_size=200))
def test_never_falls_and_is_never_infinite(sample):
    survival = fit_pareto_tail(np.array(sample))
    surprise = survival.surprise(np.linspace(-2e3, 2e3, 400))
    assert np.isfinite(surprise).all()
    assert (np.diff(surprise) >= -1e-9).all()


def test_what_is_not_known_stays_unknown():
    assert np.isnan(fit_pareto_tail(np.arange(100.0)).surprise(np.array([np.nan]))).all()


@pytest.mark.parametrize("size", [100, 300, 3000])
def test_a_small_sample_claims_no_more_than_it_can_know(size):
    from scipy.stats import lognorm

    """What it calls one in 10^5.4, an event on a node of 32 threads, happens about as seldom as that."""
    rng, truth = np.random.default_rng(size), lognorm(0.5)
    x = np.linspace(1, 400, 20_000)
    happens = [
        truth.sf(x[np.searchsorted(fit_pareto_tail(truth.rvs(size, random_state=rng)).surprise(x), 5.44)])
        for _ in range(30)
    ]
    assert np.mean(happens) < 3 * 10**-5.44


def test_the_highest_of_several_p_values_is_one_p_value_again():
    rng = np.random.default_rng(5)

    def highest(n: int) -> np.ndarray:
        return np.asarray(-np.log10(rng.random((n, 5)).min(1)))

    survival = fit_exponential_tail(highest(400))
    surprise = survival.surprise(highest(400_000))
    assert (surprise > 2).mean() == pytest.approx(1e-2, rel=0.5)
    assert (surprise > 4).mean() < 3e-4
    assert survival.surprise(np.array([12.0]))[0] > 9  # what is loud stays loud


def test_too_small_a_sample_is_refused_with_a_number():
    with pytest.raises(SettingsError, match="3 normal windows are too few"):
        fit_pareto_tail(np.arange(3.0))
