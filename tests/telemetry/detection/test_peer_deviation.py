from __future__ import annotations

import numpy as np
import pytest

from clustertwin.telemetry.detection.features.peer_deviation import FLOOR, measure_deviation


def _deviate(user: list[float], job: list[int], known: list[bool] | None = None):
    mean = np.array(user, np.float32)[:, None]
    return measure_deviation(
        mean, np.zeros_like(mean), np.array(job, np.int32), np.array(known if known else [True] * len(user), np.bool_)
    )


def test_one_of_three_threads_deviates_and_the_others_do_not():
    deviation = _deviate([0.99, 0.99, 0.67], [0, 0, 0])
    np.testing.assert_allclose(deviation.distance, [0, 0, 0.32 / FLOOR], rtol=1e-5)


def test_both_threads_of_a_pair_have_the_same_distance_and_know_their_partner():
    deviation = _deviate([0.9, 0.5, 0.7, 0.7, 0.7], [4, 4, 1, 1, 1])
    np.testing.assert_allclose(deviation.distance[:2], 0.4 / FLOOR, rtol=1e-5)
    assert deviation.partner.tolist() == [1, 0, -1, -1, -1]


def test_a_thread_alone_or_without_a_job_has_no_distance():
    deviation = _deviate([0.9, 0.1, 0.2], [0, -1, -1])
    assert np.isnan(deviation.distance).all()
    assert deviation.group_size.tolist() == [1, 0, 0]


def test_a_masked_thread_is_not_a_peer():
    deviation = _deviate([0.9, 0.1, 0.9, 0.9], [0, 0, 0, 0], [True, False, True, True])
    assert deviation.group_size.tolist() == [3, 0, 3, 3]
    assert deviation.distance[0] == pytest.approx(0)
    assert np.isnan(deviation.distance[1])


def test_noise_makes_a_distance_smaller():
    mean = np.array([[0.5], [0.5], [0.7]], np.float32)
    quiet, loud = (
        measure_deviation(mean, np.full_like(mean, s), np.zeros(3, np.int32), np.ones(3, bool)) for s in (0.0, 0.1)
    )
    assert loud.distance[2] < quiet.distance[2] / 5


def test_agrees_with_a_loop_over_jobs():
    rng = np.random.default_rng(0)
    mean, noise = rng.random((200, 4), np.float32), rng.random((200, 4), np.float32) / 10
    job = rng.integers(-1, 30, 200).astype(np.int32)
    deviation = measure_deviation(mean, noise, job, np.ones(200, bool))
    for number in range(30):
        rows = np.flatnonzero(job == number)
        if len(rows) > 2:
            apart = np.abs(mean[rows] - np.median(mean[rows], 0))
            unit = np.sqrt(noise[rows] ** 2 + np.median(noise[rows], 0) ** 2 + FLOOR**2)
            np.testing.assert_allclose(deviation.distance[rows], (apart / unit).max(1), rtol=1e-4)
