"""Landmarks small enough to check by hand, and those of the recorded kinds in a model's embedding."""

from __future__ import annotations

import numpy as np

from clustertwin.telemetry.detection.features.landmarks import Landmarks, find_landmarks
from clustertwin.telemetry.simulation.signature import read_signatures


def test_the_nearest_kinds_come_with_their_distances():
    landmarks = Landmarks(("np", "bad-io"), (False, True), np.array([[0, 0], [3, 4]], np.float32))
    threads = np.array([[3, 3], [3, 5]], np.float32)  # around (3, 4)
    assert landmarks.nearest(threads) == (("bad-io", 0.0), ("np", 5.0))


def test_every_recorded_kind_has_a_landmark_and_the_same_seed_gives_the_same(stored):
    first, again = (find_landmarks(stored, read_signatures(), seed=3) for _ in range(2))
    assert {"idle", "np", "good-io", "bad-io"} <= set(first.names)
    assert not any(name.endswith("/peer") for name in first.names)
    assert first.faulty[first.names.index("bad-io")]
    assert not first.faulty[first.names.index("np")]
    np.testing.assert_array_equal(first.centre, again.centre)
    assert np.isfinite(first.centre).all()
