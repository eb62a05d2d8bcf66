"""The fit is a real one: its gradient is right, and it finds the resonances that made the events."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.telemetry.campaign.jobs import partial_waves as pwa


@pytest.fixture(scope="module")
def sample() -> tuple[pwa.ParticleEvents, pwa.ParticleEvents]:
    rng = np.random.default_rng(1)
    return pwa.prepare(pwa.draw_events(2000, rng)), pwa.prepare(pwa.draw_phase_space(4000, rng))


def test_the_gradient_agrees_with_differences(sample: tuple[pwa.ParticleEvents, pwa.ParticleEvents]) -> None:
    x = pwa.truth() * 1.05
    _, gradient = pwa.negative_log_likelihood(x, *sample)
    for i in range(len(x)):
        step = np.zeros_like(x)
        step[i] = 1e-5
        up, down = (pwa.negative_log_likelihood(x + sign * step, *sample)[0] for sign in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-2)


def test_chunks_do_not_change_the_likelihood(sample: tuple[pwa.ParticleEvents, pwa.ParticleEvents]) -> None:
    large, small = (pwa.negative_log_likelihood(pwa.truth(), *sample, chunk=size) for size in (10**6, 777))
    assert large[0] == pytest.approx(small[0])
    np.testing.assert_allclose(large[1], small[1], rtol=1e-9, atol=1e-9)


def test_one_wave_alone_peaks_at_its_mass() -> None:
    mass = np.linspace(*pwa.MASS_RANGE_GEV, 2001)
    rows = np.column_stack([mass, np.full_like(mass, 0.5), np.zeros_like(mass)])
    alone = pwa.truth()
    alone[[0, 1, 3, 4, 5, 7]] = 0  # only the a2(1320) keeps its strength
    peak, _ = pwa.intensity(alone, pwa.prepare(rows))
    assert mass[peak.argmax()] == pytest.approx(1.318, abs=0.005)


def test_the_fit_finds_the_resonances_again(sample: tuple[pwa.ParticleEvents, pwa.ParticleEvents]) -> None:
    parameters, value = pwa.fit(pwa.random_start(np.random.default_rng(2)), *sample)
    assert value <= pwa.negative_log_likelihood(pwa.truth(), *sample)[0]
    a0, _, a2, _ = parameters[8:12]
    assert a0 == pytest.approx(0.98, abs=0.02)
    assert a2 == pytest.approx(1.318, abs=0.02)
