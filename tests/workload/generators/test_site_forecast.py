"""Forecasts: intervals of coming weeks, their score, and what is refused."""

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.workload.crps import crps
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.studies.forecast_plot import draw_forecast, forecast_page
from clustertwin.workload.studies.forecast_skill import forecast_skill, halves
from clustertwin.workload.studies.site_forecast import MEASURES, ForecastSettings, forecast, weekly_measures

pytestmark = pytest.mark.slow

WEEK_S = 7 * 86400.0


@pytest.fixture(scope="module")
def made(log):
    return forecast(log, ForecastSettings(weeks=3, draws=5, procs=64))


def test_weekly_measures_of_a_log_small_enough_for_paper():
    jobs = Jobs.build([0, 10, WEEK_S + 5], [100, 100, 50], cpus=[4, 4, 2], user=[1, 2, 2])
    measured = weekly_measures(jobs, 0.0, 3, 4)
    assert measured["jobs"].tolist() == [2, 1, 0]
    assert measured["users"].tolist() == [2, 1, 0]
    assert measured["load"] == pytest.approx(np.array([800, 100, 0]) / (4 * WEEK_S))
    assert measured["wait_s"][:2].tolist() == [45.0, 0.0]
    assert np.isnan(measured["wait_s"][2])


def test_earlier_jobs_fill_the_machine_but_are_not_counted():
    jobs = Jobs.build([-50, 0], [100, 10], cpus=[4, 4], user=[1, 2])
    measured = weekly_measures(jobs, 0.0, 1, 4)
    assert measured["jobs"].tolist() == [1]
    assert measured["wait_s"].tolist() == [50.0]


def test_the_score_of_a_point_is_its_error_and_spread_around_the_truth_is_better():
    assert crps(np.array([4.0]), 1.0) == 3.0
    assert crps(np.array([0.0, 2.0]), 1.0) < crps(np.array([2.0]), 1.0)


def test_an_interval_holds_its_median_and_the_document_has_every_week(made):
    for name in MEASURES:
        low, middle, high = made.interval(name)
        assert np.all((low <= middle) & (middle <= high))
    document = made.document()
    assert [week["week"] for week in document["weeks"]] == [1, 2, 3]
    assert document["weeks"][0]["load"]["low"] <= document["weeks"][0]["load"]["high"]
    assert document["weeks"][1]["start_s"] - document["weeks"][0]["start_s"] == WEEK_S


def test_the_load_of_a_steady_site_is_forecast_near_its_past(made):
    assert np.median(made.draws["load"]) == pytest.approx(np.mean(made.past["load"][1:]), rel=0.4)


def test_the_same_seed_gives_the_same_forecast(log, made):
    again = forecast(log, ForecastSettings(weeks=3, draws=5, procs=64))
    assert all(np.array_equal(made.draws[name], again.draws[name]) for name in MEASURES)


def test_nothing_of_the_second_half_reaches_the_forecast(make_log):
    log = make_log(days=70)
    _, made = forecast_skill(log, ForecastSettings(draws=3, procs=64))
    spoiled = log.take(slice(None))
    spoiled.run_s[len(log) // 2 :] *= 3
    _, same = forecast_skill(spoiled, ForecastSettings(draws=3, procs=64))
    assert all(np.array_equal(made.draws[name], same.draws[name]) for name in MEASURES)


def test_a_log_is_cut_in_the_middle_of_its_jobs(log):
    first, start_s = halves(log)
    assert len(first) == len(log) // 2
    assert np.all(first.submit_s < start_s)


def test_a_log_of_days_cannot_be_judged(make_log):
    with pytest.raises(TraceError, match="shorter than a week"):
        forecast_skill(make_log(days=6), ForecastSettings())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (ForecastSettings(weeks=0), "0 weeks cannot be forecast"),
        (ForecastSettings(draws=1), "needs two draws"),
        (ForecastSettings(share=1.0), "between 0 and 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, reason, log):
    with pytest.raises(SettingsError, match=reason):
        forecast(log, settings)


def test_the_picture_has_a_panel_for_each_measure_and_the_page_says_what_is_missing(made):
    pytest.importorskip("matplotlib")
    assert len(draw_forecast(made, "log").axes) == 4
    assert "Not learnt: the seasons of the year" in forecast_page(made, "log <x>")
    assert "log &lt;x&gt;" in forecast_page(made, "log <x>")
