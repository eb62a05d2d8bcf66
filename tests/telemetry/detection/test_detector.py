from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.detector_store import read, save
from clustertwin.telemetry.detection.views.view_table import VIEWS
from clustertwin.telemetry.models.model_store import ModelError, StoredModel
from clustertwin.telemetry.moments.moment import Moment, moments

from .conftest import campaign, normal_moments


@pytest.fixture(scope="module")
def fresh() -> list[tuple[Moment, object]]:
    return list(moments(campaign(9)))


@pytest.mark.medium
def test_normal_threads_exceed_the_threshold_at_about_the_stated_rate(detector: Detector, fresh):
    score = np.concatenate([detector.score(moment).score for moment, _ in fresh])
    score = score[~np.isnan(score)]
    assert len(score) > 1000
    assert (score > detector.threshold).mean() < 5 * detector.settings.false_alarm_rate
    assert (score > 1).mean() == pytest.approx(0.1, abs=0.06)


def test_a_hung_rank_is_detected_by_the_density_and_the_peers_view(detector: Detector, fresh):
    moment = next(m for m, _ in fresh if (m.settled & (np.bincount(m.job + 1)[m.job + 1] > 2) & (m.job >= 0)).any())
    size = np.bincount(moment.job + 1)[moment.job + 1]
    victim = int(np.flatnonzero(moment.settled & (size > 2) & (moment.job >= 0))[0])
    values = moment.values.copy()
    values[victim] = [0, 0, 0, 1]
    scores = detector.score(replace(moment, values=values))
    assert scores.score[victim] > detector.threshold
    assert scores.surprise[victim, scores.views.index("density")] > detector.threshold
    assert scores.surprise[victim, scores.views.index("peers")] > detector.threshold


def test_an_idle_thread_is_normal_without_a_job_and_unusual_with_one(detector: Detector, moment: Moment):
    held = replace(moment, job=np.zeros(8, np.int32), values=np.broadcast_to(moment.values[4], moment.values.shape))
    free = replace(held, job=np.array([0, 0, -1, -1, -1, -1, -1, -1], np.int32))
    assert (detector.score(held).score > detector.threshold).all()
    assert (detector.score(free).score[2:] < detector.threshold).all()


def test_in_a_pair_the_thread_that_is_normal_by_itself_is_excused(detector: Detector, moment: Moment):
    rng = np.random.default_rng(0)
    values = np.zeros_like(moment.values)
    values[..., 0] = np.clip(rng.normal(0.99, 0.01, moment.valid.shape), 0, 1)
    values[1, :, 0] = 0.3
    values[..., 3] = 1 - values[..., 0]
    scores = detector.score(replace(moment, values=values, job=np.array([0, 0] + [-1] * 6, np.int32)))
    peers = scores.surprise[:, scores.views.index("peers")]
    assert np.isnan(peers[0])
    assert peers[1] > detector.threshold


@pytest.mark.parametrize("harm", ["masked", "nan", "young"])
def test_a_thread_without_enough_known_seconds_has_no_score(detector: Detector, moment: Moment, harm: str):
    values, valid, age_s = moment.values.copy(), moment.valid.copy(), moment.age_s.copy()
    if harm == "masked":
        valid[2, -100:] = False
        values[2, -100:] = 0
    elif harm == "nan":
        values[2, -100:, 1] = np.nan
    else:
        age_s[2] = 99
    scores = detector.score(replace(moment, values=values, valid=valid, age_s=age_s))
    assert np.isnan(scores.score[2])
    assert np.isnan(scores.surprise[2]).all()
    assert scores.deciding_view(2) == ""
    assert np.isfinite(np.delete(scores.score, 2)).all()


def test_a_few_lost_seconds_do_not_make_a_normal_thread_alarm(detector: Detector, fresh):
    moment = fresh[10][0]
    before = detector.score(moment).score
    values, valid = moment.values.copy(), moment.valid.copy()
    values[:, -30:-20], valid[:, -30:-20] = np.nan, True
    after = detector.score(replace(moment, values=values, valid=valid)).score
    assert (np.isnan(before) == np.isnan(after)).all()
    calm = before < 2
    assert (after[calm] < detector.threshold).mean() > 0.97


def test_a_thread_has_the_same_score_alone_and_among_others(detector: Detector, moment: Moment):
    alone, _ = moment.with_peers(np.array([4]))
    assert len(alone) == 1
    assert detector.score(alone).score[0] == pytest.approx(detector.score(moment).score[4], rel=1e-4)


def test_no_thread_gives_no_score(detector: Detector, moment: Moment):
    nobody, _ = moment.with_peers(np.array([], np.intp))
    assert len(detector.score(nobody)) == 0


def test_without_known_jobs_a_busy_thread_is_normal(detector: Detector, moment: Moment):
    rng = np.random.default_rng(0)
    values = np.zeros_like(moment.values)
    values[..., 0] = np.clip(rng.normal(0.99, 0.01, moment.valid.shape), 0, 1)
    values[..., 3] = 1 - values[..., 0]
    nobody = np.full(8, -1, np.int32)
    informed = detector.score(replace(moment, values=values, job=nobody))
    blind = detector.score(replace(moment, values=values, job=nobody, jobs=()))
    assert (informed.score > detector.threshold).all()
    assert (blind.score < detector.threshold).all()


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_expects_ratios_that_sum_to_one(detector: Detector, fresh, view: str):
    moment = fresh[10][0]
    rows = np.flatnonzero(moment.settled & (moment.job >= 0))[:5]
    expected = detector.expected(moment, rows, view)
    assert expected.shape == (5, 4)
    known = ~np.isnan(expected).any(1)
    np.testing.assert_allclose(expected[known].sum(1), 1, atol=0.02)
    if view in ("reconstruction", "density"):
        assert known.all()
        seen = moment.windows()[0][rows].mean(1)
        assert np.abs(expected - seen).mean() < 0.1


def test_a_saved_detector_is_read_back_unchanged(detector: Detector, moment: Moment, tmp_path: Path):
    save(tmp_path, detector)
    back = read(tmp_path)
    assert back.version == detector.version
    assert back.settings == detector.settings
    first, second = detector.score(moment), back.score(moment)
    np.testing.assert_array_equal(first.score, second.score)
    np.testing.assert_array_equal(first.surprise, second.surprise)
    assert not any(b"pickle" in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", ["detector.safetensors", "weights.safetensors"])
def test_a_damaged_file_is_named(detector: Detector, tmp_path: Path, name: str):
    save(tmp_path, detector)
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(bytes(content))
    with pytest.raises(ModelError, match=name):
        read(tmp_path)


@pytest.mark.parametrize(
    "card",
    ["", "[]", "{}", '{"format": 99}', '{"format": 1, "settings": {"x": 1}, "sha256": "", "weights_sha256": ""}'],
)
def test_a_card_of_something_else_is_refused(detector: Detector, tmp_path: Path, card: str):
    save(tmp_path, detector)
    (tmp_path / "detector.json").write_text(card)
    with pytest.raises(ModelError, match=r"detector\.json"):
        read(tmp_path)


def test_a_calibration_of_another_model_is_refused(detector: Detector, tmp_path: Path):
    save(tmp_path, detector)
    card = json.loads((tmp_path / "detector.json").read_text())
    (tmp_path / "detector.json").write_text(json.dumps(card | {"weights_sha256": "0" * 64}))
    with pytest.raises(ModelError, match="another model"):
        read(tmp_path)


def test_a_model_without_calibration_is_refused(detector: Detector, tmp_path: Path):
    save(tmp_path, detector)
    (tmp_path / "detector.json").unlink()
    with pytest.raises(ModelError, match="never calibrated"):
        read(tmp_path)


def test_nothing_to_calibrate_on_is_an_error_that_says_so(stored: StoredModel, moment: Moment):
    dark = replace(moment, valid=np.zeros_like(moment.valid))
    for nothing in ([], [dark]):
        with pytest.raises(SettingsError, match="nothing to calibrate on"):
            calibrate(stored, nothing)


def test_a_detector_that_could_not_score_anything_is_refused(stored):
    _, held_out = normal_moments()
    few = held_out[0].take(np.arange(4))
    with pytest.raises(SettingsError, match=r"could not score any thread: .* normal windows are held out"):
        calibrate(stored, [few] * 3, learn=held_out[:2])


@pytest.mark.slow
def test_another_calibration_of_the_same_model_is_another_version(detector: Detector, stored: StoredModel):
    normal = [moment for moment, _ in moments(campaign(2))]
    other = calibrate(stored, normal)
    assert other.version != detector.version
    assert calibrate(stored, normal).version == other.version
