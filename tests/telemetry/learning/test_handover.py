"""While champions change, every batch is scored by exactly one of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from clustertwin.telemetry.learning.champions import champion_store, version_store
from clustertwin.telemetry.learning.champions.fencing_lock import next_fence
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


@pytest.mark.slow
def test_every_batch_is_scored_by_one_champion_while_champions_change(tmp_path, make_detector):
    traces = simulate(ClusterSettings(nodes=2, threads=8, hours=0.3), read_signatures(), 0)
    *_, (moment, _) = moments(traces, every_s=300)
    versions = [version_store.add_version(tmp_path, make_detector(seed), {}) for seed in (0, 1)]
    expected = {make_detector(seed).version: make_detector(seed).score(moment).score for seed in (0, 1)}
    handover, enough = Handover(tmp_path, make_detector(0)), threading.Event()

    def promote_in_turn() -> None:
        for i in range(1, 1000):
            if enough.is_set():
                return
            champion_store.promote(tmp_path, versions[i % 2], next_fence(tmp_path), "in turn", 0.0)

    other = threading.Thread(target=promote_in_turn)
    other.start()
    used = set()
    try:
        for _ in range(1000):
            detector = handover.poll()
            score = detector.score(moment).score
            np.testing.assert_array_equal(score, expected[detector.version])
            used.add(detector.version)
            if handover.taken >= 4:
                break
    finally:
        enough.set()
        other.join()
    assert used == set(versions)
    assert handover.taken >= 4
    assert handover.refused == 0
