"""Lost seconds are unknown and never make a thread alarm, with the bundled detector."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.moments.moment import Moment, moments
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


@pytest.fixture(scope="module")
def moment() -> Moment:
    small = ClusterSettings(nodes=2, threads=32, hours=0.4)
    *_, (last, _) = moments(simulate(small, read_signatures(), 3), every_s=500)
    return last


@pytest.mark.parametrize("lost", [slice(-40, -39), slice(-40, -35), slice(-40, -20), slice(None, None, 7)])
def test_a_gap_makes_no_normal_thread_alarm(moment: Moment, lost: slice) -> None:
    detector = bundled()
    complete = detector.score(moment).score
    values, valid = moment.values.copy(), moment.valid.copy()
    values[:, lost], valid[:, lost] = 0, False
    with_gap = detector.score(replace(moment, values=values, valid=valid))
    known = ~np.isnan(complete)
    assert known.sum() > 20
    assert np.nanmax(with_gap.score[known]) < max(np.nanmax(complete), detector.threshold)
    assert np.isfinite(with_gap.embedding).all()
