"""From sources to recordings: live traces, jobs that start and end, Ctrl-C, ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.errors import NoSamples, SourceError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.ingest.counters import Counters
from clustertwin.telemetry.recording import Recorder, Recording
from clustertwin.telemetry.recording.capture import JobLabels, hour_by_hour, take


def second(time_s: int, node: str = "n0", cpus: tuple[int, ...] = (0, 1), jobs: dict[str, int] | None = None) -> Trace:
    """One second; `jobs` says since when each has been running on cpu 0."""
    values = np.tile(np.array([0.25, 0, 0, 0.75], np.float32), (len(cpus), 1, 1))
    spans = tuple(JobSpan(job, node, (0,), since_s, time_s + 1) for job, since_s in (jobs or {}).items())
    return Trace(node, cpus, time_s, CPU, values, np.ones((len(cpus), 1), np.bool_), spans)


def test_traces_become_a_recording(tmp_path: Path) -> None:
    taken = take((second(t) for t in range(1000, 1030)), tmp_path / "r")
    assert (taken.start_s, taken.end_s, taken.threads, taken.interrupted) == (1000, 1030, 2, False)
    assert Recording.open(tmp_path / "r").trace("n0").valid.sum() == 60


def test_a_job_is_labelled_when_it_begins_and_again_when_it_has_ended(tmp_path: Path) -> None:
    running = [second(t, jobs={"7": 1001} if 1001 <= t < 1005 else {}) for t in range(1000, 1010)]
    taken = take(running, tmp_path / "r")
    assert taken.jobs == 1
    assert Recording.open(tmp_path / "r").spans == (JobSpan("7", "n0", (0,), 1001, 1005),)


def test_a_running_job_has_no_end_yet() -> None:
    jobs = JobLabels()
    assert jobs.changed(second(1000, jobs={"7": 999})) == [JobSpan("7", "n0", (0,), 999, math.inf)]
    assert jobs.changed(second(1001, jobs={"7": 999})) == []
    assert jobs.ended() == [JobSpan("7", "n0", (0,), 999, 1002)]


def test_the_pieces_of_a_job_in_consecutive_hours_are_one_span() -> None:
    jobs = JobLabels()
    jobs.changed(second(3599, jobs={"7": 3000}))
    jobs.changed(second(7199, jobs={"7": 3601}))
    assert jobs.ended() == [JobSpan("7", "n0", (0,), 3000, 7200)]


def test_ctrl_c_closes_the_recording_and_is_reported(tmp_path: Path) -> None:
    def until_ctrl_c() -> Iterator[Trace]:
        yield from (second(t) for t in range(1000, 1007))
        raise KeyboardInterrupt

    taken = take(until_ctrl_c(), tmp_path / "r")
    assert taken.interrupted
    assert Recording.open(tmp_path / "r").end_s == 1007
    Recorder.resume(tmp_path / "r").close()  # nobody holds it any more


def test_a_node_can_appear_later_and_its_new_threads_are_counted(tmp_path: Path) -> None:
    taken = take([second(1000), second(1000, "n1"), second(1001, cpus=(0, 1, 2))], tmp_path / "r")
    assert (taken.nodes, taken.unknown) == (2, 1)
    assert Recording.open(tmp_path / "r").trace("n0").valid.tolist() == [[True, True], [True, True]]


def test_no_traces_at_all_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nothing is recorded"):
        take([], tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_after_a_crash_a_job_ends_with_the_last_known_second(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "r", {"n0": (0, 1)}) as recorder:
        recorder.append(second(1000))
        recorder.label(JobSpan("7", "n0", (0,), 999, math.inf))
    Recorder.resume(tmp_path / "r").close()
    assert Recording.open(tmp_path / "r").spans == (JobSpan("7", "n0", (0,), 999, 1001),)


def test_an_hour_without_samples_is_reported_and_left_out() -> None:
    class Holey:
        """Samples once a second, but none in the second hour."""

        def counters(self, start_s: float, end_s: float) -> list[Counters]:
            if start_s > 3500 and end_s < 7300:
                raise NoSamples("nothing")
            times_s = np.arange(np.ceil(start_s), end_s)
            seconds = np.stack([times_s * 0.25, times_s * 0.75], axis=-1)[None]  # (cpu, time, mode)
            return [Counters("n0", (0,), times_s, seconds, ("user", "idle"))]

    holes: list[tuple[int, int]] = []
    found = list(hour_by_hour(Holey(), 0, 3 * 3600, on_hole=lambda start_s, end_s: holes.append((start_s, end_s))))
    assert [trace.start_s for trace in found] == [0, 7200]
    assert holes == [(3600, 7200)]


def test_a_range_without_samples_is_one_hole_and_the_error_says_what_is_missing() -> None:
    class Foreign:
        """A server that does not have our series."""

        def counters(self, start_s: float, end_s: float) -> list[Counters]:
            raise NoSamples("http://p: no node_cpu_seconds_total")

    holes: list[tuple[int, int]] = []
    with pytest.raises(NoSamples, match="no node_cpu_seconds_total"):
        list(hour_by_hour(Foreign(), 0, 3 * 3600 + 9, on_hole=lambda start_s, end_s: holes.append((start_s, end_s))))
    assert holes == [(0, 3 * 3600 + 9)]
