from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.telemetry.detection.conftest import campaign

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.studies.window_metrics import assess, average_precision, roc_auc


@pytest.fixture(scope="module")
def metrics():
    """An independent reference, imported only by the process that asks for it."""
    return pytest.importorskip("sklearn.metrics")


few = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@given(normal=few, strange=few)
def test_the_area_under_the_curve_is_the_known_one_ties_and_all(metrics, normal, strange):
    label = [0] * len(normal) + [1] * len(strange)
    assert roc_auc(np.array(normal, float), np.array(strange, float)) == pytest.approx(
        metrics.roc_auc_score(label, normal + strange)
    )


@given(normal=few, strange=few)
def test_average_precision_is_the_known_one_ties_and_all(metrics, normal, strange):
    label, score = np.array([0] * len(normal) + [1] * len(strange)), np.array(normal + strange, float)
    assert average_precision(label > 0, score) == pytest.approx(metrics.average_precision_score(label, score))


def test_a_perfect_scorer_is_perfect_and_a_blind_one_is_blind():
    traces = campaign(5, hours=2.0, anomalies=("hung-job",), anomaly_ratio=0.5)
    test = list(moments(traces))
    answers = {moment.end_s: window.anomaly != "" for moment, window in test}
    scorers = {
        "knows": lambda moment: answers[moment.end_s].astype(float),
        "blind": lambda moment: np.zeros(len(moment)),
    }
    found = assess(scorers, test, thresholds={"knows": 0.5})
    assert found["knows"].cells["hung-job"].auc == 1
    assert found["knows"].cells["hung-job"].recall == 1
    assert found["knows"].cells["hung-job"].found == 1
    assert found["knows"].false_alarms == 0
    assert found["blind"].cells["hung-job"].auc == 0.5
    assert found["blind"].cells["hung-job"].recall == 0
    assert np.isnan(found["blind"].false_alarms)


def test_nothing_normal_to_compare_with_is_an_error():
    with pytest.raises(SettingsError, match="no normal window"):
        assess({"any": lambda moment: np.zeros(len(moment))}, [])
