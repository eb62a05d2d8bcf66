"""Export: rows and windows, complete or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv, parquet

from clustertwin.core.channels import CPU
from clustertwin.core.errors import OutputError, SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.recording import Recorder, Recording
from clustertwin.telemetry.recording.export import export


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """300 s of two threads; a job on thread 0 for the second hundred, and thread 1 unseen for fifty seconds."""
    values = np.tile(np.array([0.25, 0, 0, 0.75], np.float32), (2, 300, 1))
    valid = np.ones((2, 300), np.bool_)
    valid[1, 250:] = False
    with Recorder.create(tmp_path / "r", {"n0": (0, 1)}) as recorder:
        recorder.append(Trace("n0", (0, 1), 1000, CPU, values, valid))
        recorder.label(JobSpan("7", "n0", (0,), 1100, 1200, "np"))
    return Recording.open(tmp_path / "r")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_there_is_a_row_for_each_known_second_of_a_thread(recording: Recording, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"rows.{suffix}"
    assert export(recording, out) == 550
    table = parquet.read_table(out) if suffix == "parquet" else csv.read_csv(out)
    assert table.num_rows == 550
    assert table.column_names[:7] == ["time_s", "node", "cpu", "user", "system", "iowait", "other"]
    assert sum(kind == "np" for kind in table["job_type"].to_pylist()) == 100
    assert set(table["user"].to_pylist()) == {0.25}


def test_a_ratio_in_a_csv_has_the_digits_that_were_measured(tmp_path: Path) -> None:
    values = np.tile(np.array([0.91, 0.09, 0, 0], np.float32), (1, 5, 1))
    with Recorder.create(tmp_path / "r", {"n0": (0,)}) as recorder:
        recorder.append(Trace("n0", (0,), 1000, CPU, values, np.ones((1, 5), np.bool_)))
    export(Recording.open(tmp_path / "r"), tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().splitlines()[1].startswith('1000,"n0",0,0.91,0.09,0,0,')


def test_windows_need_no_pickle(recording: Recording, tmp_path: Path) -> None:
    assert export(recording, tmp_path / "w.npz") == 6
    with np.load(tmp_path / "w.npz", allow_pickle=False) as archive:
        assert archive["values"].shape == (6, 100, 4)
        assert archive["valid"].sum() == 550
        assert archive["job_type"].tolist().count("np") == 1


def test_other_suffixes_and_existing_files_are_refused(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"must end in one of \.parquet"):
        export(recording, tmp_path / "rows.xls")
    (tmp_path / "rows.csv").write_text("mine")
    with pytest.raises(OutputError, match="already exists"):
        export(recording, tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == "mine"
