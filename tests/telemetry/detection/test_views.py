"""Every view of the table keeps the contract, and a new view needs its file and a row of the table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.calibration import calibrate, calibration_data
from clustertwin.telemetry.detection.detector import Detector, DetectorSettings
from clustertwin.telemetry.detection.detector_store import read, save
from clustertwin.telemetry.detection.events.explanation import explain
from clustertwin.telemetry.detection.views.check import check_view
from clustertwin.telemetry.detection.views.contract import CalibrationData, View
from clustertwin.telemetry.detection.views.group_tables import (
    fit_by_group,
    lowest_surprise,
    restore_survivals,
    survival_arrays,
)
from clustertwin.telemetry.detection.views.view_table import VIEWS
from clustertwin.telemetry.models.model_store import ModelError, StoredModel

from .conftest import normal_moments

SETTINGS = DetectorSettings(components=4)


@pytest.fixture(scope="module")
def data(stored: StoredModel) -> CalibrationData:
    learn, held_out = normal_moments()
    return calibration_data(stored, held_out, SETTINGS, learn[::2])


@dataclass(frozen=True, slots=True)
class SystemTimeView(View):
    """A view as a contributor would write it: is the mean system time usual?"""

    settings: DetectorSettings
    tables: dict = field(default_factory=dict)
    length_s = 300

    def fit(self, data):
        window = data.held_out.over(self.length_s)
        return replace(self, tables=fit_by_group(data.held_out.allocation, window.statistics.mean[:, 1], window.known))

    def surprise(self, observation, earlier):
        window = observation.over(self.length_s)
        system = window.statistics.mean[:, 1]
        return lowest_surprise(
            self.tables, observation.allocation, window.known, lambda table, rows: table.surprise(system[rows])
        )

    def expected(self, observation, views):
        return np.tile(np.array([0.7, 0.1, 0, 0.2], np.float32), (len(observation), 1))

    def arrays(self):
        return survival_arrays("system-time", self.tables)

    def restore(self, arrays):
        return replace(self, tables=restore_survivals(arrays, "system-time"))


@pytest.mark.medium
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_of_the_table_keeps_the_contract(name: str, data: CalibrationData):
    others = {"density": VIEWS["density"](SETTINGS).fit(data)} if name == "distance" else {}
    check_view(VIEWS[name], data, SETTINGS, others)


def test_no_two_views_store_arrays_under_the_same_name(data: CalibrationData):
    keys = [key for make in VIEWS.values() for key in make(SETTINGS).fit(data).arrays()]
    assert len(keys) == len(set(keys))


class Loud(SystemTimeView):
    def surprise(self, observation, earlier):
        return SystemTimeView.surprise(self, observation, earlier) + 3


class Forgetful(SystemTimeView):
    def restore(self, arrays):
        return self


class Infinite(SystemTimeView):
    def surprise(self, observation, earlier):
        return SystemTimeView.surprise(self, observation, earlier) / 0.0


class Relative(SystemTimeView):
    def surprise(self, observation, earlier):
        surprise = SystemTimeView.surprise(self, observation, earlier)
        return np.abs(surprise - np.nanmean(surprise)) if self.tables else surprise


@pytest.mark.parametrize(
    ("view", "rule"),
    [
        (Loud, "100.0% of normal threads have a surprise above 2"),
        (Forgetful, "restore gives different arrays"),
        (Infinite, "a surprise is infinite"),
        (Relative, "depends on threads of other jobs"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_the_check_names_the_rule_that_a_view_breaks(view: type[View], rule: str, data: CalibrationData):
    check_view(SystemTimeView, data, SETTINGS)
    with pytest.raises(AssertionError, match=rule):
        check_view(view, data, SETTINGS)


@pytest.fixture(scope="module")
def extended(stored: StoredModel) -> Detector:
    """A detector with one view of ours and the contributor's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(VIEWS, "system-time", SystemTimeView)
        learn, held_out = normal_moments()
        return calibrate(stored, held_out, SETTINGS, learn[::2], views=("system-time", "reconstruction"))


def test_a_new_view_is_scored_explained_and_stored_without_another_change(
    extended: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    moment = normal_moments()[1][5]
    busy = moment.values.copy()
    busy[:, :] = [0, 1, 0, 0]
    moment = replace(moment, values=busy)
    scores = extended.score(moment)
    assert scores.views == ("reconstruction", "system-time")
    thread = int(np.nanargmax(scores.surprise[:, 1]))
    assert scores.surprise[thread, 1] > extended.threshold
    only = replace(scores, surprise=np.where([False, True], scores.surprise, np.nan))
    explanation = explain(extended, moment, only, np.array([thread]))
    assert explanation is not None
    assert (explanation.view, explanation.channel, explanation.end_s - explanation.start_s) == (
        "system-time",
        "system",
        300,
    )
    save(tmp_path, extended)
    monkeypatch.setitem(VIEWS, "system-time", SystemTimeView)
    back = read(tmp_path)
    assert (back.views, back.version) == (extended.views, extended.version)
    np.testing.assert_array_equal(back.score(moment).score, scores.score)


def test_a_detector_with_a_view_that_this_version_lacks_is_refused(extended: Detector, tmp_path: Path):
    save(tmp_path, extended)
    with pytest.raises(ModelError, match=r"detector\.safetensors: .*a view that this version lacks: system-time"):
        read(tmp_path)


def test_a_detector_can_be_calibrated_with_some_of_the_views(stored: StoredModel):
    learn, held_out = normal_moments()
    some = calibrate(stored, held_out, SETTINGS, learn[::2], views=("peers", "reconstruction"))
    assert some.views == ("reconstruction", "peers")
    scores = some.score(held_out[3])
    assert scores.surprise.shape == (len(held_out[3]), 2)
    assert np.isfinite(scores.score).any()
    with pytest.raises(SettingsError, match=r"no view 'density'; its views are reconstruction, peers"):
        some.expected(held_out[3], np.array([0]), "density")


def test_an_unknown_view_is_refused_by_name(stored: StoredModel):
    with pytest.raises(SettingsError, match=r"no view guesswork; the views are reconstruction, density"):
        calibrate(stored, [], views=("guesswork",))


def test_a_view_with_nothing_to_fit_is_not_part_of_the_detector(stored: StoredModel):
    learn, held_out = (
        [replace(moment, jobs=(), job=np.full(len(moment), -1, np.int32)) for moment in part]
        for part in normal_moments()
    )
    without_jobs = calibrate(stored, held_out, SETTINGS, learn[::2])
    assert without_jobs.views == tuple(name for name in VIEWS if not name.startswith("peers"))
