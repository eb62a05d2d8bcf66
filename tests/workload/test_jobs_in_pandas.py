"""A job log as a pandas DataFrame."""

import sys

import numpy as np
import pandas as pd
import pytest

from clustertwin.core.errors import MissingExtra
from clustertwin.workload.jobs import Jobs, Status


def log(**columns) -> Jobs:
    return Jobs.build(submit_s=[0, 60, 60], run_s=[10, -1, 30], cpus=[4, -1, 8], **columns)


def test_columns_keep_their_values_and_unknown_is_missing():
    frame = log().to_pandas()
    assert list(frame["cpus"].dropna()) == [4, 8]
    assert frame["cpus"].dtype == "Int64"
    assert np.isnan(frame["run_s"][1])
    assert frame["submit_s"].tolist() == [0.0, 60.0, 60.0]
    assert frame["id"].tolist() == [1, 2, 3]
    assert "submit" not in frame


def test_codes_become_names_where_the_log_has_names():
    frame = log(user=[1, 0, -1], group=[3, 3, 4], names={"user": ("ada", "bob")}).to_pandas()
    assert frame["user"].astype("string").fillna("?").tolist() == ["bob", "ada", "?"]
    assert frame["group"].tolist() == [3, 3, 4]


def test_the_status_is_a_word():
    frame = log(status=[Status.COMPLETED, Status.FAILED, -1]).to_pandas()
    assert frame["status"].tolist() == ["completed", "failed", "unknown"]


def test_a_log_with_a_date_has_the_local_time_of_submission():
    frame = log(epoch_s=1_700_000_000.0, timezone="Europe/Berlin").to_pandas()
    assert frame["submit"][1] == pd.Timestamp("2023-11-14 23:14:20", tz="Europe/Berlin")
    assert frame.groupby(frame["submit"].dt.hour)["cpus"].sum().to_dict() == {23: 12}


def test_an_empty_log_is_an_empty_frame():
    assert Jobs.build([], []).to_pandas().shape == (0, 13)


def test_without_pandas_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"clustertwin\[pandas\]"):
        log().to_pandas()
