"""A service that restarts goes on with the past of running jobs; a file that cannot be used stops nothing."""

from __future__ import annotations

import json
import os
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import load, save
from tests.service.conftest import Clock

from clustertwin.core.errors import InputError
from clustertwin.service.live.feeds.live_feed import LiveFeed
from clustertwin.service.store import running_jobs
from clustertwin.service.store.home_check import check_home
from clustertwin.service.store.home_format import create_home
from clustertwin.service.store.running_jobs import (
    FILE,
    LONGEST_AWAY_S,
    SAVE_S,
    RunningJobsFile,
    jobs_document,
    read_jobs,
)
from clustertwin.telemetry.detection.forecast.memory_watch import PIECES, KeptMemory, MemoryWatch
from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
from clustertwin.telemetry.ingest.counters import MODES, JobCpus, NodeReading

BEGIN_S = 1_700_000_000
ONSET_S = 700


class JobInTheKernel:
    """A node whose job computes, and spends a third of its time in the kernel from `ONSET_S` on."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def readings(self) -> list[NodeReading]:
        since_s = self.clock.now_s - BEGIN_S
        system_s = 0.01 * min(since_s, ONSET_S) + 0.33 * max(since_s - ONSET_S, 0)
        seconds = np.zeros((2, len(MODES)))
        seconds[:, MODES.index("system")], seconds[:, MODES.index("user")] = system_s, since_s - system_s
        return [NodeReading("n1", self.clock.now_s, (0, 1), 1e4 + seconds, jobs=(JobCpus("42", (0, 1)),))]


def watch_until(loop, clock: Clock, second: int) -> None:
    while clock.now_s < BEGIN_S + second:
        clock.now_s += 1
        loop.turn()


@pytest.fixture
def fault(loop_of, state, clock):
    """Builds loops over a job with a fault. The fault has lasted for longer than a moment when the first one ends."""
    clock.now_s = float(BEGIN_S)
    feed = LiveFeed("test", [("n1", JobInTheKernel(clock))], clock)
    watch_until(loop_of(feed, clock=clock), clock, ONSET_S + 400)
    assert [event.cause for event in state.snapshot.events] == ["kernel-time"]
    return lambda: loop_of(LiveFeed("test", [("n1", JobInTheKernel(clock))], clock), clock=clock)


@pytest.mark.slow
def test_a_service_that_is_killed_during_a_fault_does_not_take_it_as_usual(fault, state, clock):
    (event,) = state.snapshot.events
    again = fault()  # the first loop was not closed
    watch_until(again, clock, ONSET_S + 1100)
    assert [after.id for after in state.snapshot.events] == [event.id]
    assert state.snapshot.events[0].seen_s > BEGIN_S + ONSET_S + 1000


@pytest.mark.slow
def test_without_the_file_the_last_minutes_are_usual_and_the_event_ends_late(fault, state, clock):
    (state.home / FILE).unlink()
    again = fault()
    watch_until(again, clock, ONSET_S + 400 + 100 + 250)
    assert state.snapshot.events  # it may be found again
    watch_until(again, clock, ONSET_S + 400 + 100 + 350)
    assert not state.snapshot.events


def past_of(blocks: int = 3, job: str = "42") -> QuestionMemory:
    """A memory of one job."""
    memory = QuestionMemory()
    row = np.array([memory.past._add((job, "n1"))])
    for block in range(blocks):
        signals = np.full((1, memory.past._blocks.shape[2]), 0.25, np.float32)
        memory.past.append(row, signals, np.zeros(signals.shape, np.bool_), BEGIN_S + 30 * block)
    return memory


def document(**changes: object) -> bytes:
    """The file of one job, with other names or arrays."""
    arrays = load(jobs_document(past_of(), MemoryWatch(), BEGIN_S + 90))
    names = json.loads(arrays["names"].tobytes())
    for name, value in changes.items():
        (names if name in names else arrays)[name] = value
    return save(arrays | {"names": np.frombuffer(json.dumps(names).encode(), np.uint8)})


def test_a_memory_goes_on_where_the_other_one_ended(tmp_path):
    (tmp_path / FILE).write_bytes(jobs_document(past_of(), MemoryWatch(), BEGIN_S + 90))
    memory = QuestionMemory()
    RunningJobsFile(tmp_path, MemoryWatch()).go_on(memory, BEGIN_S + 200)
    row = np.array([memory.past._row["42", "n1"]])
    np.testing.assert_allclose(memory.past.usual(row).centre, 0.25)
    memory.end_jobs(BEGIN_S + 200)
    assert memory.past.places == (("42", "n1"),)  # it counts as seen
    memory.end_jobs(BEGIN_S + 400)
    assert memory.past.places == ()


def test_a_watch_of_memory_goes_on_too():
    watch, pieces = MemoryWatch(), np.full((1, PIECES), np.nan, np.float32)
    pieces[0, -5:] = 0.5
    watch.go_on(KeptMemory((("n1", "42"),), pieces, 7))
    kept = watch.kept(10)
    assert (kept.places, kept.pieces.tolist(), kept.piece) == ((("n1", "42"),), [[0.5] * 5], 7)


@pytest.mark.parametrize("now_s", [BEGIN_S, BEGIN_S + 91 + LONGEST_AWAY_S])
def test_a_file_from_long_ago_or_from_the_future_is_not_used(tmp_path, now_s):
    (tmp_path / FILE).write_bytes(document())
    memory = QuestionMemory()
    RunningJobsFile(tmp_path, MemoryWatch()).go_on(memory, now_s)
    assert memory.past.places == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"\xff" * 8 + b"{}",
        document()[:-10],
        document(version=2),
        document(signals=["user"]),
        document(end_s="now"),
        document(places=[["42", "n1"], ["42", "n1"]]),
        document(places=[["42", 1]]),
        document(places=[]),
        document(labels=[["solver"]]),
        document(filled=np.array([10**6])),
        document(filled=np.array([-1])),
        document(first=np.array([50])),
        document(rest=np.full((1, 3), -1)),
        document(blocks=np.full((3, 27), np.inf, np.float16)),
        document(blocks=np.zeros((3, 27), np.float64)),
        document(memory=np.zeros((1, 2), np.float32)),
        document(memory=np.zeros(2, np.float32)),
    ],
)
def test_a_damaged_file_is_named_and_nothing_of_it_is_used(tmp_path, data):
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(InputError, match=FILE):
        read_jobs(tmp_path / FILE)
    memory, file = QuestionMemory(), RunningJobsFile(tmp_path, MemoryWatch(), clock := Clock())
    file.go_on(memory, BEGIN_S + 100)
    assert memory.past.places == ()
    assert "running jobs is taken from the last minutes" in file.problem
    clock.now_s += SAVE_S
    file.save(past_of(), BEGIN_S + 100)
    assert file.problem == ""
    assert read_jobs(tmp_path / FILE).jobs.places == (("42", "n1"),)


def test_a_file_that_would_be_too_long_to_read_has_fewer_jobs(tmp_path, monkeypatch):
    memory = past_of(blocks=5)
    for job in range(7):
        row = np.array([memory.past._add(("\U0001f600" * 200 + str(job), "n1"))])
        signals = np.full((1, memory.past._blocks.shape[2]), 0.25, np.float32)
        memory.past.append(row, signals, np.zeros(signals.shape, np.bool_), BEGIN_S)
    monkeypatch.setattr(running_jobs, "MOST_PARTS", 8)
    monkeypatch.setattr(running_jobs, "MOST_BYTES", len(jobs_document(memory, MemoryWatch(), BEGIN_S + 200)) - 1)
    (tmp_path / FILE).write_bytes(jobs_document(memory, MemoryWatch(), BEGIN_S + 200))
    stored = read_jobs(tmp_path / FILE)
    assert stored is not None
    assert stored.jobs.places[0] == ("42", "n1")
    assert len(stored.jobs.places) == 2


def test_a_part_whose_last_block_is_from_the_future_is_refused(tmp_path):
    """Its job would get no further block, and so keep its past of now for ever."""
    arrays = load(document())
    (tmp_path / FILE).write_bytes(save(arrays | {"end_s": arrays["end_s"] + 1000}))
    with pytest.raises(InputError):
        read_jobs(tmp_path / FILE)


def test_an_array_of_another_shape_is_not_compared_with_all_parts(tmp_path):
    """A column of a million numbers against a row of four thousand is four gigabytes."""
    places = [[str(job), "n1"] for job in range(4096)]
    content = document(
        places=places, labels=[["", ""]] * 4096, filled=np.ones(4096, np.int64), first=np.zeros((1 << 20, 1), np.int64),
        blocks=np.zeros((4096, 27), np.float16), flagged=np.zeros((4096, 27), np.bool_),
    )  # fmt: skip
    (tmp_path / FILE).write_bytes(content)
    tracemalloc.start()
    with pytest.raises(InputError):
        read_jobs(tmp_path / FILE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(content)


def test_a_pipe_in_its_place_is_no_file(tmp_path):
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(InputError):
        read_jobs(tmp_path / FILE)


def test_the_doctor_counts_the_jobs_and_moves_a_damaged_file_away(tmp_path):
    home = create_home(tmp_path / "home")
    (home / FILE).write_bytes(document())
    found = {finding.part: finding for finding in check_home(home)}
    assert found[FILE].detail == "the past of 1 parts of jobs"
    (home / FILE).write_bytes(b"\0")
    found = {finding.part: finding for finding in check_home(home)}
    assert not found[FILE].ok
