"""Traces into windows: shapes, labels at the edges, masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.core.windows import cut


def a_trace(
    seconds: int, cpus: tuple[int, ...] = (0, 1), spans: tuple[JobSpan, ...] = (), interval_s: int = 1
) -> Trace:
    """Second t of the i-th cpu has user = t/seconds + i/1000: every value tells where it came from."""
    time, cpu = np.meshgrid(np.arange(seconds), np.arange(len(cpus)))
    values = np.zeros((len(cpus), seconds, 4), np.float32)
    values[:, :, 0] = time / (2 * seconds) + cpu / 1000
    values[:, :, 3] = 1 - values[:, :, 0]
    valid = np.ones((len(cpus), seconds), np.bool_)
    return Trace("n0", cpus, 1000, CPU, values, valid, spans, interval_s)


def span(start_s: float, end_s: float, job: str = "7", **about: object) -> JobSpan:
    return JobSpan(job, "n0", (0,), start_s, end_s, "np", **about)  # type: ignore[arg-type]


def test_windows_stand_side_by_side_in_order_of_cpu_and_start() -> None:
    windows = cut(a_trace(250), length_s=100)
    assert windows.values.shape == (4, 100, 4)
    assert windows.start_s.tolist() == [1000, 1100, 1000, 1100]
    assert windows.cpu.tolist() == [0, 0, 1, 1]
    assert windows.values[3, 0, 0] == pytest.approx(100 / 500 + 0.001)


def test_windows_side_by_side_are_a_view() -> None:
    trace = a_trace(200)
    assert np.shares_memory(cut(trace).values, trace.values)


def test_a_shorter_stride_overlaps() -> None:
    trace = a_trace(250)
    windows = cut(trace, length_s=100, stride_s=50)
    assert windows.start_s[:4].tolist() == [1000, 1050, 1100, 1150]
    assert np.array_equal(windows.values[1], trace.values[0, 50:150])


def test_seconds_count_by_the_cadence() -> None:
    windows = cut(a_trace(50, interval_s=5), length_s=100)
    assert windows.values.shape == (4, 20, 4)
    assert windows.start_s.tolist() == [1000, 1100, 1000, 1100]


def test_a_length_that_is_no_multiple_of_the_cadence_is_refused() -> None:
    with pytest.raises(SettingsError, match="103 s is no multiple"):
        cut(a_trace(50, interval_s=5), length_s=103)


@pytest.mark.parametrize("stride_s", [100, 50])
def test_a_trace_shorter_than_a_window_has_none(stride_s: int) -> None:
    assert len(cut(a_trace(99), stride_s=stride_s)) == 0


def test_wholly_invalid_windows_are_dropped_and_partly_valid_keep_their_mask() -> None:
    trace = a_trace(200)
    trace.valid[0, :100] = False
    trace.valid[1, 3] = False
    windows = cut(trace)
    assert list(zip(windows.cpu.tolist(), windows.start_s.tolist(), strict=True)) == [(0, 1100), (1, 1000), (1, 1100)]
    assert np.flatnonzero(~windows.valid[1]).tolist() == [3]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ((), ["idle", "idle", "idle"]),
        ((span(1100, 1200),), ["idle", "np", "idle"]),
        ((span(1100.5, 1200),), ["idle", "mixed", "idle"]),
        ((span(1050, 1250),), ["mixed", "np", "mixed"]),
        ((span(1100, 1200), span(1190, 1290, "8")), ["idle", "mixed", "mixed"]),
        ((span(900, 2000),), ["np", "np", "np"]),
        ((span(900, float("inf")),), ["np", "np", "np"]),
        ((span(100, 900), span(5000, 6000)), ["idle", "idle", "idle"]),
    ],
)
def test_the_job_of_a_window_covers_it_wholly_and_alone(spans: tuple[JobSpan, ...], expected: list[str]) -> None:
    windows = cut(a_trace(300, spans=spans))
    assert windows.job_type[:3].tolist() == expected
    assert windows.job_type[3:].tolist() == ["idle"] * 3  # the span names cpu 0 only
    assert [bool(job) for job in windows.job[:3]] == [kind == "np" for kind in expected]


@pytest.mark.parametrize(
    ("onset_s", "expected"),
    [(None, ["hung"] * 3), (1150.0, ["", "hung", "hung"]), (1151.0, ["", "", "hung"]), (1300.0, ["", "", ""])],
)
def test_a_window_is_anomalous_when_half_of_it_lies_after_the_onset(onset_s: float | None, expected: list[str]) -> None:
    windows = cut(a_trace(300, cpus=(0,), spans=(span(1000, 1300, anomaly="hung", onset_s=onset_s),)))
    assert windows.anomaly.tolist() == expected


def test_spans_of_other_nodes_and_unknown_cpus_do_not_count() -> None:
    spans = (JobSpan("1", "n9", (0,), 1000, 1300), JobSpan("2", "n0", (77,), 1000, 1300))
    assert set(cut(a_trace(300, spans=spans)).job_type) == {"idle"}


@given(seconds=st.integers(0, 60), length=st.integers(1, 20), stride=st.integers(1, 20))
def test_every_window_equals_its_piece_of_the_trace(seconds: int, length: int, stride: int) -> None:
    trace = a_trace(seconds, cpus=(0, 5))
    windows = cut(trace, length, stride)
    assert len(windows) == 2 * max(0, (seconds - length) // stride + 1)
    for i in range(len(windows)):
        at, row = windows.start_s[i] - trace.start_s, trace.cpus.index(int(windows.cpu[i]))
        assert np.array_equal(windows.values[i], trace.values[row, at : at + length])
