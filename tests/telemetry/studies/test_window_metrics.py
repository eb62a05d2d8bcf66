from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.telemetry.detection.conftest import campaign

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.studies.window_metrics import evaluate_scorers, roc_auc


@pytest.fixture(scope="module")
def metrics():
    """An independent reference, imported only by the process that asks for it."""
    return pytest.importorskip("sklearn.metrics")


few = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@given(normal=few, anomalous=few)
def test_the_roc_auc_agrees_with_the_reference_for_ties_too(metrics, normal, anomalous):
    label = [0] * len(normal) + [1] * len(anomalous)
    assert roc_auc(np.array(normal, float), np.array(anomalous, float)) == pytest.approx(
        metrics.roc_auc_score(label, normal + anomalous)
    )


def test_the_metrics_of_a_perfect_and_of_a_constant_scorer():
    traces = campaign(5, hours=2.0, anomalies=("hung-job",), anomaly_ratio=0.5)
    test = list(moments(traces))
    answers = {moment.end_s: window.anomaly != "" for moment, window in test}
    scorers = {
        "perfect": lambda moment: answers[moment.end_s].astype(float),
        "constant": lambda moment: np.zeros(len(moment)),
    }
    results = evaluate_scorers(scorers, test, thresholds={"perfect": 0.5})
    perfect, constant = (results[name].anomalies["hung-job"] for name in ("perfect", "constant"))
    assert (perfect.auc, perfect.recall, perfect.recall_at_threshold) == (1, 1, 1)
    assert results["perfect"].false_positive_rate == 0
    assert (constant.auc, constant.recall) == (0.5, 0)
    assert np.isnan(results["constant"].false_positive_rate)


def test_moments_without_a_normal_window_are_an_error():
    with pytest.raises(SettingsError, match="no normal window"):
        evaluate_scorers({"any": lambda moment: np.zeros(len(moment))}, [])
