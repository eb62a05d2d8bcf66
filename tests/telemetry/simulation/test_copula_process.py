"""Stick-breaking shares, ticks and the Gaussian series: known answers, then properties."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clustertwin.telemetry.simulation.copula_process import draw_ticks, latent_series, overwrite_edges
from clustertwin.telemetry.simulation.signature import FREQUENCIES, NORMAL_SCORES, SEGMENT_S
from clustertwin.telemetry.simulation.stick_breaking import ORDERS, TICKS, to_shares, to_ticks


def test_shares_of_a_second_on_paper():
    # Half of the second is user, two fifths of the remainder are system, two thirds of the last remainder iowait.
    shares = to_shares(np.array([0.5, 0.2, 0.2, 0.1]), (0, 1, 2, 3))
    assert shares == pytest.approx([0.5, 0.4, 2 / 3])


def test_a_share_of_an_empty_remainder_is_undefined():
    assert np.isnan(to_shares(np.array([1.0, 0, 0, 0]), (0, 1, 2, 3))[1:]).all()


@given(
    hnp.arrays(np.float32, (7, 3), elements=st.floats(0, 1, width=32)),
    st.sampled_from(ORDERS),
)
def test_any_shares_give_whole_ticks_that_sum_to_a_second(shares, order):
    ticks = to_ticks(shares, order)
    assert ticks.dtype == np.uint8
    assert (ticks.sum(axis=-1, dtype=int) == TICKS).all()


@given(st.lists(st.integers(0, 100), min_size=3, max_size=3).map(sorted), st.sampled_from(ORDERS))
def test_ticks_can_be_turned_into_shares_and_back(cuts, order):
    ticks = np.diff([0, *cuts, TICKS])
    assert to_ticks(np.nan_to_num(to_shares(ticks / TICKS, order)), order).tolist() == ticks.tolist()


def test_white_factors_give_independent_series_of_unit_variance(signatures):
    series = latent_series(signatures.kinds["np", ""], 40, 5000, np.random.default_rng(0))
    assert series.shape == (40, 3, 5000)
    assert series.std() == pytest.approx(1, abs=0.02)
    assert abs(np.corrcoef(series[:, 0].ravel(), series[:, 1].ravel())[0, 1]) < 0.02
    assert abs((series[:, :, 1:] * series[:, :, :-1]).mean()) < 0.02


def test_a_shared_factor_couples_the_threads_of_a_job(signatures):
    kind = signatures.kinds["np", ""]
    half = replace(kind, own=kind.own * np.sqrt(0.25), shared=kind.own * np.sqrt(0.75))
    series = latent_series(half, 2, 20_000, np.random.default_rng(1))
    assert np.corrcoef(series[0, 0], series[1, 0])[0, 1] == pytest.approx(0.75, abs=0.03)


def test_a_spectral_line_becomes_a_period(signatures):
    kind = signatures.kinds["np", ""]
    line = np.full(FREQUENCIES, 0.05)
    line[8] = 5.0  # 8/64 Hz: every eight seconds
    series = latent_series(replace(kind, own=kind.own * line[:, None, None]), 8, 4096, np.random.default_rng(2))
    power = np.abs(np.fft.rfft(series[:, 0], axis=-1)).mean(axis=0)
    assert np.fft.rfftfreq(4096)[power.argmax()] == pytest.approx(8 / SEGMENT_S, abs=1 / SEGMENT_S)


def test_simulated_marginals_are_those_of_the_signature(signatures):
    kind = signatures.kinds["good-io", ""]
    user = draw_ticks(kind, 20, 5000, np.random.default_rng(3))[..., 0] / TICKS
    middle = kind.quantiles[0][len(NORMAL_SCORES) // 2]
    assert np.median(user) == pytest.approx(middle, abs=0.01)
    assert np.quantile(user, 0.8413) == pytest.approx(np.interp(1.0, NORMAL_SCORES, kind.quantiles[0]), abs=0.01)


def test_a_trend_climbs_from_the_first_second_to_the_last(signatures):
    kind = replace(signatures.kinds["good-io", ""], trend=np.array([0.9, 0, 0]))
    user = draw_ticks(kind, 50, 100, np.random.default_rng(4))[..., 0].mean(axis=0)
    assert user[-10:].mean() > user[:10].mean() + 5


def test_the_same_generator_gives_the_same_ticks(signatures):
    kind = signatures.kinds["np", ""]
    first, second = (draw_ticks(kind, 3, 200, np.random.default_rng(5)) for _ in range(2))
    assert (first == second).all()


def test_edges_replace_the_first_and_the_last_seconds(signatures):
    kind, rng = signatures.kinds["np", ""], np.random.default_rng(6)
    ticks = draw_ticks(kind, 4, 50, rng)
    body = ticks[:, 1:-1].copy()
    overwrite_edges(ticks, kind, rng)
    assert (ticks[:, -1] == [0, 0, 0, TICKS]).all()
    assert (ticks[:, 1:-1] == body).all()
    assert (ticks.sum(axis=-1, dtype=int) == TICKS).all()
