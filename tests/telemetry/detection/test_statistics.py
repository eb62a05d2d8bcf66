from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.telemetry.detection.features.statistics import START_S, Statistics, measure_each
from clustertwin.telemetry.moments.moment import Moment


def measure(moment: Moment, length_s: int) -> Statistics:
    return measure_each(moment, (length_s,))[0]


def test_means_are_those_of_the_last_seconds(moment: Moment):
    values = moment.values.copy()
    values[0, -50:] = [0, 1, 0, 0]
    statistics = measure(replace(moment, values=values), 100)
    np.testing.assert_allclose(statistics.mean[0], [0.5, 0.5, 0, 0])
    np.testing.assert_allclose(statistics.mean[4], [0, 0, 0, 1])
    assert statistics.seconds.tolist() == [100] * 8


def test_only_the_seconds_of_the_current_job_count_without_its_start(moment: Moment):
    values = moment.values.copy()
    values[0, :-40] = [0, 0, 1, 0]  # what ran before, and the start of what runs now
    age_s = moment.age_s.copy()
    age_s[0] = 40 + START_S
    statistics = measure(replace(moment, values=values, age_s=age_s), 300)
    assert statistics.seconds[0] == 40
    np.testing.assert_allclose(statistics.mean[0], [1, 0, 0, 0])


def test_a_masked_second_changes_nothing(moment: Moment):
    rng = np.random.default_rng(0)
    valid = rng.random(moment.valid.shape) < 0.9
    values = np.where(valid[..., None], rng.dirichlet([1] * 4, moment.valid.shape), 0).astype(np.float32)
    clean = measure(replace(moment, values=values, valid=valid), 100)
    values[~valid] = 0.7
    odd = measure(replace(moment, values=values, valid=valid), 100)
    np.testing.assert_array_equal(clean.features, odd.features)
    np.testing.assert_allclose(
        clean.mean[1], (values[1] * valid[1, :, None])[-100:].sum(0) / valid[1, -100:].sum(), rtol=1e-5
    )


def test_the_noise_of_a_mean_is_that_of_its_blocks(moment: Moment):
    values = moment.values.copy()
    share = np.repeat([0.0, 1.0] * 5, 10)  # ten blocks, half of them busy
    values[0, -100:, 0], values[0, -100:, 3] = share, 1 - share
    assert measure(replace(moment, values=values), 100).noise[0, 0] == pytest.approx(0.5 / np.sqrt(10))


def test_threads_that_move_together_differ_from_threads_that_do_not(moment: Moment):
    rng = np.random.default_rng(0)
    beat = rng.random(300)
    values = np.zeros_like(moment.values)
    values[:2, :, 0], values[2:, :, 0] = beat, rng.random((6, 300))
    values[..., 3] = 1 - values[..., 0]
    job = np.array([0, 0, 1, 1, -1, -1, -1, -1], np.int32)
    correlation = measure(replace(moment, values=values, job=job, jobs=("1", "2")), 300).features[:, -3]
    assert correlation[0] > 0.95
    assert abs(correlation[2]) < 0.3
    assert correlation[4] == 0


def test_threads_without_valid_seconds_give_zeros_and_no_warning(moment: Moment):
    statistics = measure(replace(moment, valid=np.zeros_like(moment.valid)), 100)
    assert statistics.seconds.tolist() == [0] * 8
    assert np.isfinite(statistics.features).all()
