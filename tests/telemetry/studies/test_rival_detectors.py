from __future__ import annotations

import numpy as np
import pytest
from tests.telemetry.detection.conftest import campaign

from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.studies.rival_detectors import RIVALS, model_error


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_each_rival_is_fitted_and_scores_every_thread(name):
    if name.startswith("PyOD"):
        pytest.importorskip("pyod", reason="pip install 'clustertwin[study]'")
    train = [moment for moment, _ in moments(campaign(1, hours=0.5))]
    score = RIVALS[name](train, 0)
    test = next(moments(campaign(8, hours=0.5)))[0]
    scores = score(test)
    assert scores.shape == (len(test),)
    assert np.isfinite(scores).all()
    # A thread that waits for I/O all the time scores above most others.
    if name != "k-means per metric":
        loud = test.values.copy()
        loud[0] = [0, 0, 1, 0]
        assert score(_with(test, loud))[0] > np.median(scores)


def test_the_model_error_has_one_score_per_thread(stored):
    moment = next(moments(campaign(8, hours=0.5)))[0]
    assert model_error(stored)(moment).shape == (len(moment),)


def _with(moment, values):
    from dataclasses import replace

    return replace(moment, values=values)
