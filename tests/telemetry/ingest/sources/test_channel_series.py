"""The series of jobs and channels: sums of the series that have samples, ranges in pieces, and too many times."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertwin.core.channels import JOB, NODE
from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.ingest.sources import series_table
from clustertwin.telemetry.ingest.sources.channel_series import (
    ChannelAnswer,
    job_operands,
    node_operands,
    place_series,
    plan_channels,
    spans_of,
)
from clustertwin.telemetry.ingest.sources.query_answer import LabelReader, read_answer

TIMES_S = np.array([10.0, 11.0, 12.0, 13.0])
Samples = list[tuple[float, float]]


def answer(*rows: tuple[str, dict[str, str], Samples]) -> ChannelAnswer:
    result = [
        {"metric": {"__name__": name, "instance": "n:1", **labels}, "values": [[t, str(v)] for t, v in samples]}
        for name, labels, samples in rows
    ]
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
    return read_answer(body, "http://p", "q", LabelReader(lambda labels: plan_channels(labels, "twin")))


def at(times_s: Any, value: float = 1.0) -> Samples:
    return [(float(time_s), value) for time_s in times_s]


def allocated(job: str, cpu: int, times_s: Any) -> tuple[str, dict[str, str], Samples]:
    return "twin_job_cpu_allocated", {"jobid": job, "cpu": str(cpu)}, at(times_s)


def test_an_operand_is_the_sum_of_its_series() -> None:
    disks = answer(
        ("twin_disk_io_seconds_total", {"device": "a"}, at(TIMES_S, 2)),
        ("twin_disk_io_seconds_total", {"device": "b"}, at(TIMES_S, 3)),
    )
    operands = node_operands(place_series("n:1", TIMES_S, [disks]), len(TIMES_S))
    np.testing.assert_array_equal(operands[:, NODE.index("disk_busy"), 0], [5, 5, 5, 5])
    assert np.isnan(operands[:, NODE.index("disk_busy"), 1]).all()


def test_a_series_that_ended_before_the_range_is_not_a_part_of_the_sum() -> None:
    disks = answer(
        ("twin_disk_io_seconds_total", {"device": "a"}, at(TIMES_S, 2)),
        ("twin_disk_io_seconds_total", {"device": "gone"}, at([9.5], 3)),
    )
    placed = place_series("n:1", TIMES_S, [disks.between(10, 14)])
    np.testing.assert_array_equal(node_operands(placed, 4)[:, NODE.index("disk_busy"), 0], [2, 2, 2, 2])


def test_a_sum_is_unknown_where_one_of_its_series_has_no_sample() -> None:
    disks = answer(
        ("twin_disk_io_seconds_total", {"device": "a"}, at(TIMES_S, 2)),
        ("twin_disk_io_seconds_total", {"device": "b"}, at([12, 13], 3)),
    )
    placed = place_series("n:1", TIMES_S, [disks])
    np.testing.assert_array_equal(node_operands(placed, 4)[:, NODE.index("disk_busy"), 0], [np.nan, np.nan, 5, 5])


def test_the_threads_of_a_job_are_its_second_operand() -> None:
    jobs = answer(*(allocated("17", cpu, TIMES_S) for cpu in range(3)), allocated("18", 3, TIMES_S))
    used = answer(("twin_job_cpu_seconds_total", {"jobid": "17", "mode": "user"}, at(TIMES_S, 7)))
    placed = place_series("n:1", TIMES_S, [jobs]) + place_series("n:1", TIMES_S, [used])
    operands = job_operands(["17", "18", "19"], placed, 4)[:, :, JOB.index("job_cpu")]
    np.testing.assert_array_equal(operands[0], [[7, 3]] * 4)
    np.testing.assert_array_equal(operands[1], [[np.nan, 1]] * 4)
    assert np.isnan(operands[2]).all()


def test_a_span_ends_with_the_last_sample_of_its_job() -> None:
    jobs = answer(allocated("17", 0, [10, 11]), allocated("18", 1, TIMES_S))
    spans = spans_of("n", TIMES_S, place_series("n:1", TIMES_S, [jobs]))
    assert spans == (JobSpan("17", "n", (0,), 10, 12), JobSpan("18", "n", (1,), 10, 13))


@given(st.data())
@settings(deadline=None)
def test_a_range_in_pieces_is_the_range_at_once(data: st.DataObject) -> None:
    some = st.lists(st.sampled_from(TIMES_S.tolist()), unique=True).map(sorted)
    jobs = answer(*(allocated(job, cpu, data.draw(some)) for cpu, job in enumerate(["17", "17", "18"])))
    cut_s = data.draw(st.sampled_from([10.0, 11.0, 13.0, 14.0]))
    pieces = place_series("n:1", TIMES_S, [jobs.between(0, cut_s), jobs.between(cut_s, 99)])
    whole = place_series("n:1", TIMES_S, [jobs])
    assert spans_of("n", TIMES_S, pieces) == spans_of("n", TIMES_S, whole)
    # The series of one job may all end before the cut, and then its sum does not include them after it.
    both = np.isfinite(job_operands(["17", "18"], whole, 4))
    np.testing.assert_array_equal(
        job_operands(["17", "18"], pieces, 4)[both], job_operands(["17", "18"], whole, 4)[both]
    )


def test_series_with_a_time_of_their_own_each_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_table, "_EMPTY_CELLS", 1000)
    times_s = np.arange(100.0)
    lies = answer(*(allocated("17", cpu, [cpu]) for cpu in range(100)))
    with pytest.raises(ValueError, match="100 series of its jobs and channels have 100 different times"):
        place_series("n:1", times_s, [lies])


@pytest.mark.parametrize("time_s", [1.0, 10.5, 99.0])
def test_a_sample_at_no_time_of_the_counters_changes_nothing(time_s: float) -> None:
    jobs = answer(allocated("17", 0, [time_s]))
    placed = place_series("n:1", TIMES_S, [jobs])
    assert spans_of("n", TIMES_S, placed) == ()
    assert np.isnan(job_operands(["17"], placed, 4)).all()
