"""`twin record` and `twin recording` as a person calls them."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests import servers

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.recording import Recorder, Recording


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Two recordings of 300 s and two threads; a job on thread 0 for the second hundred."""
    root = tmp_path_factory.mktemp("campaign")
    values = np.tile(np.array([0.25, 0, 0, 0.75], np.float32), (2, 300, 1))
    for split in ("train", "test"):
        with Recorder.create(root / split, {"n0": (0, 1)}, campaign="c", split=split) as recorder:
            recorder.append(Trace("n0", (0, 1), 1000, CPU, values, np.ones((2, 300), np.bool_)))
            recorder.label(JobSpan("7", "n0", (0,), 1100, 1200, "np", anomaly="hung" if split == "test" else ""))
    return root


def test_info_summarises_each_recording(twin_here, campaign):
    result = twin_here("recording", "info", campaign, "--json")
    assert result.returncode == 0, result.stderr
    first = json.loads(result.stdout)[0]
    assert (first["split"], first["samples"], first["jobs"]) == ("test", 2 * 300 * 4, 1)
    assert first["windows"] == {"idle": 5, "np": 1}
    assert first["missing_ratio"] == 0


def test_a_recording_that_is_too_short_for_a_window_says_so(twin_here, campaign):
    said = twin_here("recording", "windows", campaign / "train", "--window-s", 301).stdout
    assert said.strip().endswith("no windows; a window is 301 s of one thread with one job, or without a job")


def test_windows_are_counted_by_type_anomaly_and_split(twin_here, campaign):
    rows = json.loads(twin_here("recording", "windows", campaign, "--json").stdout)
    assert [tuple(row.values()) for row in rows] == [
        ("idle", "", "test", 5),
        ("idle", "", "train", 5),
        ("np", "", "train", 1),
        ("np", "hung", "test", 1),
    ]


@pytest.mark.slow
def test_export_says_how_many_rows(twin, campaign, tmp_path):
    result = twin("recording", "export", campaign / "train", "--out", tmp_path / "rows.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 600
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 601


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("recording", "info", "{tmp}"), 1, "no recording in or below"),
        (("record", "--out", "{tmp}/r", "--prometheus", "http://localhost:1", "--start", "noon"), 2, "epoch seconds"),
    ],
)
def test_bad_input_is_reported_in_one_line(twin_here, tmp_path, arguments, code, reason):
    result = twin_here(*(each.format(tmp=tmp_path) for each in arguments))
    assert result.returncode == code
    assert reason in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_record_records_this_host(twin, tmp_path):
    for seconds in (3, 20, 90):  # on a busy machine, three seconds may pass without two readings
        result = twin("record", "--out", tmp_path / "r", "--seconds", str(seconds), "--json")
        if "there was no complete second" not in result.stderr:
            break
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["threads"] >= 1
    recording = Recording.open(tmp_path / "r")
    trace = recording.trace(next(iter(recording.nodes)))
    assert trace.valid.any()
    assert np.allclose(trace.values[trace.valid].sum(axis=1), 1, atol=1e-6)
    again = twin("record", "--out", tmp_path / "r", "--seconds", "1")
    assert again.returncode == 1
    assert "already holds a recording" in again.stderr


@pytest.mark.slow
def test_ctrl_c_reports_and_leaves_a_complete_recording(tmp_path: Path):
    command = [sys.executable, "-m", "clustertwin", "record", "--out", str(tmp_path / "r"), "--flush-s", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        patience_s = time.monotonic() + 120
        while not list(tmp_path.glob("r/*/journal")):
            assert time.monotonic() < patience_s
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "until Ctrl-C" in said
    assert Recording.open(tmp_path / "r").end_s > 0


@pytest.mark.real
def test_record_takes_a_range_from_prometheus(twin, tmp_path: Path):
    with (
        servers.exporter(tmp_path / "exporter") as node,
        servers.prometheus(tmp_path / "prometheus", {"twin": [node.address]}) as server,
    ):
        patience_s, scrapes = time.monotonic() + 120, 0.0
        while scrapes < 8 and time.monotonic() < patience_s:
            time.sleep(0.5)
            answer = httpx.get(server.url + "/api/v1/query", params={"query": "sum_over_time(up[1m])"}).json()
            scrapes = float(answer["data"]["result"][0]["value"][1]) if answer["data"]["result"] else 0.0
        start_s = int(time.time()) - 6
        span = ("--start", str(start_s), "--end", str(start_s + 4))
        result = twin("record", "--out", tmp_path / "r", "--prometheus", server.url, *span, "--json")
    assert result.returncode == 0, result.stderr
    recording = Recording.open(tmp_path / "r")
    trace = recording.trace(next(iter(recording.nodes)))
    assert start_s <= trace.start_s < trace.end_s <= start_s + 4
    assert trace.valid.any()
    assert np.allclose(trace.values[trace.valid].sum(axis=1), 1, atol=1e-6)
