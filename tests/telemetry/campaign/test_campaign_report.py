"""The table of a campaign: windows cut job by job, means by hand, expectations met or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.core.windows import cut
from clustertwin.telemetry.campaign.campaign_report import summarise, tabulate
from clustertwin.telemetry.campaign.catalogue import JOB_TYPES, Expectation, find_type, label_of
from clustertwin.telemetry.recording import Recorder

START_S = 1_800_000_000


def record(directory: Path, split: str, parts: list[tuple[JobSpan, tuple[float, float, float, float]]]) -> None:
    """One node of two CPUs; each span's seconds hold these ratios, all other seconds none."""
    values = np.zeros((2, 60, 4), np.float32)
    values[..., 3] = 1.0
    for span, ratios in parts:
        values[list(span.cpus), int(span.start_s) - START_S : int(span.end_s) - START_S] = ratios
    with Recorder.create(directory, {"n1": (0, 1)}, campaign=split, split=split) as recorder:
        recorder.append(Trace("n1", (0, 1), START_S, CPU, values, np.ones((2, 60), bool)))
        for span, _ in parts:
            recorder.label(span)


def span(job: str, first: int, last: int, job_type: str, anomaly: str = "", cpus: tuple[int, ...] = (0, 1)) -> JobSpan:
    return JobSpan(job, "n1", cpus, START_S + first, START_S + last, job_type, "", anomaly)


def test_windows_start_with_their_job_and_means_are_its_own(tmp_path: Path) -> None:
    computing, waiting = (0.95, 0.05, 0.0, 0.0), (0.1, 0.1, 0.5, 0.3)
    record(
        tmp_path / "a", "train", [(span("1", 3, 15, "np"), computing), (span("2", 17, 41, "bad-io", "bad-io"), waiting)]
    )
    record(tmp_path / "b", "test", [(span("3", 7, 18, "np"), computing)])
    np_row, bad_row = summarise(tmp_path, length_s=10)
    assert (np_row.kind, np_row.windows) == ("np", {"train": 2, "test": 2})
    assert (bad_row.kind, bad_row.windows) == ("bad-io", {"train": 4})
    assert np_row.means == pytest.approx({"user": 0.95, "system": 0.05, "iowait": 0.0, "other": 0.0}, abs=0.005)
    assert not np_row.unmet
    assert not bad_row.unmet


def test_what_a_host_does_not_give_is_said_with_what_it_gave(tmp_path: Path) -> None:
    record(tmp_path / "a", "train", [(span("1", 0, 20, "np"), (0.5, 0.0, 0.0, 0.5))])
    (row,) = summarise(tmp_path, length_s=10)
    assert row.unmet == ("user ≥ 0.9, got 0.50",)


def test_a_struck_cpu_and_its_peers_are_rows_of_their_own() -> None:
    peer, affected = span("1", 0, 20, "mpi-2", "hung-rank/peer", (0,)), span("1", 0, 20, "mpi-2", "hung-rank", (1,))
    values = np.zeros((2, 20, 4), np.float32)
    values[0], values[1] = (0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0)
    trace = Trace("n1", (0, 1), START_S, CPU, values, np.ones((2, 20), bool), (peer, affected))
    rows = {row.kind: row for row in tabulate(cut(trace, 10, split="test"))}
    assert {kind: row.windows for kind, row in rows.items()} == {
        "hung-rank": {"test": 2},
        "hung-rank/peer": {"test": 2},
    }
    assert rows["hung-rank"].expected != rows["hung-rank/peer"].expected
    assert not any(row.unmet for row in rows.values())


def test_jobs_shorter_than_a_window_give_no_table(tmp_path: Path) -> None:
    record(tmp_path / "a", "train", [(span("1", 0, 9, "np"), (1.0, 0.0, 0.0, 0.0))])
    assert summarise(tmp_path, length_s=10) == []


def test_an_expectation_reads_as_it_is_checked() -> None:
    between = Expectation("user", least=0.5, most=0.85)
    assert str(between) == "user ≥ 0.5 and ≤ 0.85"
    assert [between.met(mean) for mean in (0.4, 0.5, 0.85, 0.9)] == [False, True, True, False]


@pytest.mark.parametrize("name", JOB_TYPES)
def test_every_anomaly_is_labelled_with_a_normal_type(name: str) -> None:
    label = label_of(name, 2)
    assert not find_type(label).anomaly or label == "bad-io"
    assert JOB_TYPES[name].expectations
