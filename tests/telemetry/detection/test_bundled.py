from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from clustertwin.telemetry.detection import bundled as package
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.bundled.recipe import Recipe, make
from clustertwin.telemetry.detection.bundled.synthetic_threads import synthetic_node
from clustertwin.telemetry.moments.moment import Moment, moments
from clustertwin.telemetry.studies.window_metrics import evaluate_scorers

from .conftest import campaign

HERE = Path(package.__file__).parent


def test_is_small_and_holds_no_pickle():
    shipped = [path for path in HERE.iterdir() if path.suffix in (".json", ".safetensors")]
    assert sum(path.stat().st_size for path in shipped) < 1_000_000
    assert {path.name for path in shipped} == {
        "model.json",
        "weights.safetensors",
        "detector.json",
        "detector.safetensors",
    }


def test_its_card_names_the_version_that_is_here():
    assert bundled().version in (HERE / "MODEL_CARD.md").read_text()


@pytest.mark.medium
def test_detects_strong_faults_with_few_false_alarms():
    traces = campaign(21, hours=1.5, anomalies=("bad-io", "hung-job", "throttled"), anomaly_ratio=0.4)
    detector = bundled()
    assessment = evaluate_scorers(
        {"shipped": lambda m: detector.score(m).score}, moments(traces), thresholds={"shipped": detector.threshold}
    )["shipped"]
    assert assessment.false_positive_rate < 0.02
    assert assessment.anomalies
    for name, cell in assessment.anomalies.items():
        assert cell.auc > 0.99, name
        assert cell.recall_at_threshold > 0.9, name


def test_an_idle_machine_without_jobs_raises_no_alarm(moment: Moment):
    from dataclasses import replace

    still = np.broadcast_to(moment.values[4], moment.values.shape)
    scores = bundled().score(replace(moment, values=still, job=np.full(8, -1, np.int32), jobs=()))
    assert (scores.score < bundled().threshold).all()


def test_synthetic_threads_have_complete_seconds_and_little_iowait():
    trace = synthetic_node(64, 200, np.random.default_rng(0))
    np.testing.assert_allclose(trace.values.sum(-1), 1, atol=1e-6)
    assert trace.values[..., 2].mean(1).max() < 0.05
    user = trace.values[..., 0].mean(1)
    assert user.min() < 0.01
    assert user.max() > 0.4


@pytest.mark.slow
def test_the_same_recipe_makes_the_same_detector():
    small = Recipe(hours=1.0, nodes=4, threads=16, seconds=700, epochs=1)
    assert re.fullmatch(r"linear-[0-9a-f]{12}", make(small).version)
    assert make(small).sha256 == make(small).sha256
