"""Jobs from data of a researcher: a DataFrame or columns, right and wrong."""

import numpy as np
import pandas as pd
import pytest

import clustertwin as ct
from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.workload.fidelity.measures.arrivals import by_hour
from clustertwin.workload.jobs import COLUMNS


def test_a_log_survives_pandas():
    log = ct.example_log(100)
    again = ct.Jobs.from_pandas(log.to_pandas())
    assert all(np.array_equal(getattr(log, name), getattr(again, name)) for name in COLUMNS)
    assert (again.epoch_s, again.timezone) == (log.epoch_s, log.timezone)


def test_dates_durations_words_and_missing_values_are_understood():
    submit = pd.to_datetime(["2026-03-02 00:00", "2026-03-01 00:00"]).tz_localize("Europe/Rome")
    jobs = ct.Jobs.from_pandas(
        pd.DataFrame(
            {
                "submit": submit,
                "run_s": pd.to_timedelta([60, 30], "s"),
                "cpus": pd.Series([2, None], dtype="Int64"),
                "user": ["ann", None],
                "status": ["completed", "FAILED"],
            }
        )
    )
    assert jobs.submit_s.tolist() == [0, 86_400]  # sorted, from the first submission on
    assert jobs.epoch_s == pd.Timestamp("2026-02-28 23:00", tz="UTC").timestamp()
    assert (jobs.run_s.tolist(), jobs.cpus.tolist(), jobs.status.tolist()) == ([30, 60], [-1, 2], [0, 1])
    assert (jobs.user.tolist(), jobs.names["user"]) == ([-1, 0], ("ann",))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"submit_s": [0], "runtime": [1]}, "did you mean 'run_s'"),
        ({"submit_s": [0]}, "it needs the columns run_s"),
        ({"submit": ["2026-01-01"], "run_s": [1]}, "pandas.to_datetime"),
        ({"submit": pd.to_datetime(["2026-01-01", None]), "run_s": [1, 1]}, "missing in row 1"),
        ({"submit_s": [0], "run_s": ["long"]}, "run_s holds no numbers"),
        ({"submit_s": [0], "run_s": [1], "status": ["ok"]}, "status 'ok' is unknown"),
    ],
)
def test_a_frame_that_is_no_job_table_is_refused_with_a_remedy(columns, reason):
    with pytest.raises(TraceError, match=reason):
        ct.Jobs.from_pandas(pd.DataFrame(columns))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"submit_s": [0, 1], "run_s": [1, 1, 1]}, "run_s has the shape"),
        ({"submit_s": pd.to_datetime(["2026-01-01"]), "run_s": [1]}, "dates or durations"),
        ({"submit_s": pd.to_datetime(["2026-01-01"], utc=True), "run_s": [1]}, "dates or durations"),
        ({"submit_s": [0], "run_s": pd.to_timedelta(["60s"])}, "dates or durations"),
        ({"submit_s": [0], "run_s": [1], "cpus": [np.nan]}, "-1 stands for an unknown one"),
        ({"submit_s": [0], "run_s": [1], "user": ["ann"]}, "from_pandas takes words"),
        ({"submit_s": [0], "run_s": [1], "cpus": [2.5]}, "cpus has the value 2.5; it has whole numbers only"),
    ],
)
def test_columns_that_are_no_numbers_of_one_length_are_refused(columns, reason):
    with pytest.raises(TraceError, match=reason):
        ct.Jobs.build(**columns)


def test_a_frame_in_the_place_of_a_log_gets_a_hint():
    with pytest.raises(SettingsError, match=r"ct.Jobs.from_pandas\(frame\)"):
        ct.simulate(pd.DataFrame({"submit_s": [0]}))


def test_a_schedule_says_how_many_jobs_it_refused():
    log = ct.Jobs.build(submit_s=[0, 1], run_s=[60, 60], cpus=[1, 9])
    assert "1 jobs (1 refused: see remarks)" in repr(ct.simulate(log, procs=4))


def test_an_offset_of_whole_hours_is_a_time_zone():
    """The zone was `UTC+01:00`, which no calendar knows: hours of the day ended with a traceback."""
    submit = pd.to_datetime(["2026-01-05 09:00+01:00"])
    assert int(by_hour(ct.Jobs.from_pandas(pd.DataFrame({"submit": submit, "run_s": 60}))).argmax()) == 9
    half_past = pd.to_datetime(["2026-01-05 09:00+05:30"])
    with pytest.raises(TraceError, match=r"time zone UTC\+05:30; convert it with dt\.tz_convert"):
        ct.Jobs.from_pandas(pd.DataFrame({"submit": half_past, "run_s": 60}))
