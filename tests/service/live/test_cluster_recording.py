"""The recording of a cluster: many nodes through the loop, beside it, and what odd nodes cannot do to the others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from tests.service.conftest import Clock
from tests.service.live.counting import Counting, live, play

from clustertwin.core import files
from clustertwin.core.channels import CPU, JOB, NODE
from clustertwin.core.errors import OutputError
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace
from clustertwin.service.live.beside import recording_thread
from clustertwin.service.live.beside.joined_traces import joined
from clustertwin.service.live.beside.recording_thread import RecordingThread
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.telemetry.recording import Recording, recorder

HOUR_S, DAY_S = 3600, 86_400
NOW_S = 20_000 * DAY_S


def idle(node: str, start_s: int, seconds: int = 10, cpus: tuple[int, ...] = (0, 1), **others: object) -> Trace:
    values = np.zeros((len(cpus), seconds, len(CPU)), np.float32)
    values[..., CPU.index("other")] = 1
    return replace(Trace(node, cpus, start_s, CPU, values, np.ones((len(cpus), seconds), np.bool_)), **others)


class Hung:
    """A recorder whose disk hangs until it is released."""

    lost, problem = 0, ""

    def __init__(self) -> None:
        self.released, self.begun = threading.Event(), threading.Event()
        self.traces: list[Trace] = []

    def add(self, trace: Trace) -> None:
        self.begun.set()
        self.released.wait(60)
        self.traces.append(trace)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def kept(feed) -> Iterator[list[Trace]]:
    """The traces that a feed returns."""
    traces, take = [], feed.take

    def noted() -> list[Trace]:
        traces.extend(now := take())
        return now

    feed.take = noted
    yield traces


def seconds(recording: Recording, node: str) -> int:
    return int(recording.trace(node).valid.any(0).sum())


# Through the loop, on a thread of its own ----------------------------------------------------------------------------


@pytest.mark.medium
def test_what_the_loop_gets_of_several_nodes_reads_back_equal_and_a_restart_continues(loop_of, clock, tmp_path):
    clock.now_s = 1_000_000.0
    sources = [Counting(clock, node) for node in ("n1", "n2", "n3")]
    traces: list[Trace] = []
    for _ in range(2):
        thread = RecordingThread(LiveRecorder(tmp_path / "r", keep_s=None, flush_s=50), collected_s=0.01)
        feed = live(clock, *sources)
        with kept(feed) as now:
            loop = loop_of(feed, recorder=thread)
            play(loop, clock, sources, 30)
        thread.close()
        traces += now
        assert (thread.lost, thread.problem) == (0, "")
    recording = Recording.open(tmp_path / "r")
    assert sorted(recording.nodes) == ["n1", "n2", "n3"]
    assert len(traces) > 100
    for trace in traces:
        read = recording.trace(trace.node, trace.start_s, trace.end_s)
        assert (read.cpus, read.valid.tolist()) == (trace.cpus, trace.valid.tolist())
        np.testing.assert_allclose(read.values, trace.values, atol=1e-6)


def test_the_loop_goes_on_while_the_disk_hangs_and_then_nothing_is_missing(loop_of, clock):
    clock.now_s = 1_000_000.0
    sources, hung = [Counting(clock, node) for node in ("n1", "n2")], Hung()
    thread = RecordingThread(hung, collected_s=0)
    feed = live(clock, *sources)
    with kept(feed) as traces:
        loop = loop_of(feed, recorder=thread)
        before = play(loop, clock, sources, 5)
        assert hung.begun.wait(60)
        after = play(loop, clock, sources, 20)
    assert after.number == before.number + 20
    assert after.moment.end_s > before.moment.end_s + 10
    hung.released.set()
    thread.close()
    assert sum(trace.valid.shape[1] for trace in hung.traces) == sum(trace.valid.shape[1] for trace in traces)


def test_traces_beyond_the_budget_are_dropped_counted_and_named_until_the_disk_is_back():
    hung = Hung()
    thread = RecordingThread(hung, most_bytes=20_000, collected_s=0)
    thread.add(idle("n1", NOW_S))
    assert hung.begun.wait(60)
    for second in range(1, 20):
        thread.add(idle("n1", NOW_S + 10 * second))
    assert "traces dropped, because 8 traces of 0 MB wait for the disk" in thread.problem
    assert thread.lost == 12
    hung.released.set()
    thread.close()
    assert (thread.lost, thread.problem) == (12, "")
    assert sum(trace.valid.shape[1] for trace in hung.traces) == 80


def test_a_disk_that_hangs_is_named_long_before_the_queue_is_full():
    hung, clock = Hung(), Clock()
    thread = RecordingThread(hung, collected_s=0, clock=clock)
    thread.add(idle("n1", NOW_S))
    assert hung.begun.wait(60)
    assert thread.problem == ""
    clock.now_s = recording_thread.STANDS_S + 1
    assert thread.problem == "recording: nothing was written for 61 s; 1 trace of 0 MB wait for the disk"
    hung.released.set()
    thread.close()


def test_a_stopping_service_does_not_wait_for_a_disk_that_hangs_and_says_what_is_lost(caplog):
    hung = Hung()
    thread = RecordingThread(hung, collected_s=0, ends_within_s=0.05)
    thread.add(idle("n1", NOW_S))
    assert hung.begun.wait(60)
    thread.add(idle("n1", NOW_S + 10))
    with caplog.at_level(logging.WARNING, logger="uvicorn.error"):
        logging.getLogger("uvicorn.error").addHandler(caplog.handler)
        thread.close()
    logging.getLogger("uvicorn.error").removeHandler(caplog.handler)
    assert "not written in time and lost: 2 traces, and up to the last minute of each node" in caplog.text
    hung.released.set()


def test_the_thread_survives_a_recorder_that_raises_and_names_the_reason():
    class Raises(Hung):
        def add(self, trace: Trace) -> None:
            super().add(trace)
            if len(self.traces) == 1:
                raise MemoryError

    inner = Raises()
    inner.released.set()
    thread = RecordingThread(inner, collected_s=0)
    thread.add(idle("n1", NOW_S))
    for _ in range(2000):
        if thread.problem == "recording failed: MemoryError":
            break
        time.sleep(0.01)
    else:
        pytest.fail("the reason was not named")
    thread.add(idle("n1", NOW_S + 10))
    thread.close()
    assert thread.problem == ""
    assert [trace.start_s for trace in inner.traces] == [NOW_S, NOW_S + 10]


def test_a_thread_that_got_no_trace_closes():
    RecordingThread(Hung()).close()


def test_only_traces_that_follow_each_other_with_the_same_threads_and_jobs_are_joined():
    def part(start_s: int, cpus: tuple[int, ...] = (0,), job: str = "7") -> Trace:
        span = JobSpan(job, "n1", (0,), NOW_S, start_s + 1)
        node = NodeChannels(NODE, np.full((1, len(NODE)), start_s % 10 / 10, np.float32))
        jobs = JobChannels(JOB, (job,), np.full((1, 1, len(JOB)), 0.5, np.float32))
        return idle("n1", start_s, 1, cpus, spans=(span,), node_channels=node, job_channels=jobs)

    starts = (NOW_S, NOW_S + 1, NOW_S + 2, NOW_S + 9)
    traces = [part(start_s) for start_s in starts] + [part(NOW_S + 10, job="8"), part(NOW_S + 11, (0, 1), "8")]
    one, *others = joined([*traces[:2], idle("n2", NOW_S, 1), *traces[2:]])
    assert (one.start_s, one.end_s, one.spans[0].end_s) == (NOW_S, NOW_S + 3, NOW_S + 3)
    assert one.values.shape == (1, 3, 4)
    np.testing.assert_allclose(one.node_channels.values[:, 0], [0, 0.1, 0.2], atol=1e-6)
    assert one.job_channels.values.shape == (1, 3, len(JOB))
    assert [(trace.node, trace.start_s) for trace in others] == [
        ("n2", NOW_S),
        ("n1", NOW_S + 9),
        ("n1", NOW_S + 10),
        ("n1", NOW_S + 11),
    ]


# Odd nodes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path):
    """Adds traces to a recorder, and opens what it has recorded."""
    clock = Clock()
    made = LiveRecorder(tmp_path / "r", keep_s=7 * DAY_S, clock=clock, flush_s=50)
    yield made, clock, lambda: made.close() or Recording.open(tmp_path / "r")
    made.close()


@pytest.mark.medium
@pytest.mark.parametrize("hours", [-20, -24 * 40])
def test_a_node_whose_clock_is_behind_does_not_stop_the_others(recorded, hours):
    """It was the newest of all, so the others seemed to jump, and nothing of them was recorded."""
    recorder, clock, opened = recorded
    for clock.now_s in range(0, 1200, 10):
        order = ("late", "n1", "n2") if clock.now_s else ("n1", "n2", "late")
        for node in order:
            behind_s = hours * HOUR_S if node == "late" else 0
            recorder.add(idle(node, NOW_S + behind_s + int(clock.now_s)))
    problem = "" if hours == -20 else "the clock of late is 960 h behind the others; it is not recorded"
    assert recorder.problem == problem
    recording = opened()
    assert [seconds(recording, node) for node in ("n1", "n2")] == [1200, 1200]
    assert ("late" in recording.nodes) == (hours == -20)


@pytest.mark.medium
def test_a_node_whose_clock_is_wrong_at_the_start_delays_the_others_by_ten_minutes_at_most(recorded):
    recorder, clock, opened = recorded
    for clock.now_s in range(0, 1200, 10):
        recorder.add(idle("late", NOW_S - 40 * DAY_S + int(clock.now_s)))
        for node in ("n1", "n2"):
            recorder.add(idle(node, NOW_S + int(clock.now_s)))
    assert "clock of late" in recorder.problem
    recording = opened()
    assert [seconds(recording, node) for node in ("n1", "n2")] == [600, 600]


@pytest.mark.medium
def test_a_jump_of_most_nodes_is_believed_after_ten_minutes(recorded):
    recorder, clock, opened = recorded
    for clock.now_s in range(0, 1300, 10):
        jump_s = 2 * DAY_S if clock.now_s >= 100 else 0
        for node in ("n1", "n2", "n3"):
            recorder.add(idle(node, NOW_S + jump_s + int(clock.now_s)))
        recorder.add(idle("old", NOW_S + int(clock.now_s)))
    assert "the clock of old is 48 h behind the others" in recorder.problem
    assert seconds(opened(), "n1") == 100 + 600


def test_a_silent_node_takes_no_memory_its_jobs_end_and_it_can_come_back(recorded, tmp_path):
    recorder, clock, opened = recorded
    span = JobSpan("7", "n2", (0,), NOW_S, NOW_S + 10)
    recorder.add(idle("n2", NOW_S, spans=(span,)))
    for clock.now_s in range(0, 1000, 10):
        recorder.add(idle("n1", NOW_S + int(clock.now_s)))
    buffers = {name: writer._buffer.nbytes for name, writer in recorder._recorder._arrays.items()}
    assert (buffers["n2"], buffers["n1"] > 0) == (0, True)
    assert list(recorder._guard._offsets_s) == ["n1"]
    assert (tmp_path / "r/n2/c.0.0.0").exists()
    assert [(span.job, span.end_s) for span in Recording.open(tmp_path / "r").spans] == [("7", NOW_S + 10)]
    clock.now_s = 3 * HOUR_S
    recorder.add(idle("n2", NOW_S + 3 * HOUR_S - 590, 600))  # the ring of an exporter that is reachable again
    assert recorder.problem == ""
    recording = opened()
    assert seconds(recording, "n2") == 10 + 600


def test_a_node_that_gets_threads_keeps_its_seconds_and_the_new_threads_are_recorded(recorded, tmp_path):
    recorder, clock, opened = recorded
    for start_s, cpus in ((0, (2, 3)), (10, (0, 2, 3, 9)), (20, (2,)), (HOUR_S, (0, 2, 3, 9))):
        clock.now_s = start_s
        recorder.add(idle("n1", NOW_S + start_s, cpus=cpus))
    assert (recorder.lost, recorder.problem) == (0, "")
    recording = opened()
    trace = recording.trace("n1")
    assert trace.cpus == (0, 2, 3, 9)
    assert trace.valid[:, [5, 15, 25, -5]].tolist() == [
        [False, True, False, True],
        [True, True, True, True],
        [True, True, False, True],
        [False, True, False, True],
    ]
    assert recording.window("n1", 9, NOW_S, 100)[1].sum() == 10
    again = LiveRecorder(tmp_path / "r", keep_s=None)
    again.add(idle("n1", NOW_S + 2 * HOUR_S, cpus=(0, 1, 2)))
    again.close()
    assert Recording.open(tmp_path / "r").trace("n1").cpus == (0, 1, 2, 3, 9)


def test_a_chunk_from_before_a_node_got_threads_reads_with_the_new_ones_unknown(recorded):
    recorder, clock, opened = recorded
    recorder.add(idle("n1", NOW_S, cpus=(0, 1)))
    clock.now_s = HOUR_S
    recorder.add(idle("n1", NOW_S + HOUR_S, cpus=(0, 1, 2, 3)))
    recording = opened()
    assert recording.trace("n1", NOW_S, NOW_S + 10).valid.all(1).tolist() == [True, True, False, False]
    assert [recording.window("n1", cpu, NOW_S, 10)[1].all() for cpu in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("odd", ["\udcff", "gpu/1", "..", "n" * 250, "é" * 200, "", "a\nb"])
def test_a_node_with_an_odd_name_does_not_stop_the_others(recorded, odd):
    recorder, clock, opened = recorded
    for clock.now_s in (0, 10, 20):
        for node in ("n1", odd, "n2"):
            recorder.add(idle(node, NOW_S + int(clock.now_s)))
    recording = opened()
    assert [seconds(recording, node) for node in ("n1", "n2")] == [30, 30]
    assert (odd in recording.nodes) == (odd not in ("\udcff", ""))


@pytest.mark.parametrize("cpus", [(0, 1 << 20), tuple(range(30_000)), (0, 0), ()])
@pytest.mark.parametrize("first", [True, False])
def test_impossible_threads_leave_a_recording_that_can_be_opened(recorded, cpus, first):
    recorder, _clock, opened = recorded
    nodes = (("odd", cpus), ("n1", (0, 1))) if first else (("n1", (0, 1)), ("odd", cpus))
    for node, threads in nodes:
        recorder.add(idle(node, NOW_S, 1, threads))
    assert (recorder.lost, "recording failed" in recorder.problem) == (1, True)
    assert list(opened().nodes) == ["n1"]


def test_a_disk_that_is_full_while_a_node_is_added_refuses_it_for_that_time_only(recorded, monkeypatch):
    """The node stayed without arrays, and no later second of it was recorded."""
    made, _clock, opened = recorded
    made.add(idle("n1", NOW_S))
    with monkeypatch.context() as patch:
        full = OutputError("no space left")
        patch.setattr(files, "write", lambda *_, **__: (_ for _ in ()).throw(full))
        made.add(idle("n2", NOW_S))
        assert made.problem == "recording failed: no space left"
    made.add(idle("n2", NOW_S + 10))
    assert made.problem == ""
    assert seconds(opened(), "n2") == 10


def test_one_node_that_cannot_be_recorded_stays_named_while_others_are(recorded):
    recorder, _clock, _opened = recorded
    for start_s in (0, 10):
        recorder.add(idle("back", NOW_S + 100 - start_s))
        recorder.add(idle("n1", NOW_S + start_s))
    assert "came after" in recorder.problem
    recorder.add(idle("back", NOW_S + 110))
    assert recorder.problem == ""


@pytest.mark.medium
def test_invented_names_fill_neither_the_document_nor_the_memory(recorded, monkeypatch):
    made, _clock, opened = recorded
    monkeypatch.setattr(recorder, "MOST_ADMITTED_BYTES", 6000)
    for number in range(30):
        made.add(idle(f"x{number}", NOW_S))
    assert "there is no room for 'x10' beside the 10 nodes of the recording" in made.problem
    assert "19 more nodes are not recorded either" in made.problem
    for start_s in (10, 20):
        made.add(idle("x0", NOW_S + start_s))
    recording = opened()
    assert (len(recording.nodes), seconds(recording, "x0")) == (10, 30)


@pytest.mark.medium
def test_a_node_whose_seconds_have_all_expired_is_removed(tmp_path):
    clock = Clock()
    made = LiveRecorder(tmp_path / "r", keep_s=2 * HOUR_S, clock=clock)
    made.add(idle("gone", NOW_S, spans=(JobSpan("7", "gone", (0,), NOW_S, NOW_S + 10),)))
    for clock.now_s in range(0, 6 * HOUR_S, 600):
        made.add(idle("n1", NOW_S + int(clock.now_s), 600))
    assert list(Recording.open(tmp_path / "r").nodes) == ["n1"]
    assert not (tmp_path / "r/gone").exists()
    made.add(idle("gone", NOW_S + int(clock.now_s)))
    made.close()
    assert seconds(Recording.open(tmp_path / "r"), "gone") == 10
    again = LiveRecorder(tmp_path / "r", keep_s=None)
    again.add(idle("n1", NOW_S + 7 * HOUR_S))
    again.close()
    assert (again.lost, again.problem) == (0, "")


def test_of_a_trace_that_begins_with_known_seconds_the_others_are_recorded(recorded):
    recorder, _clock, opened = recorded
    recorder.add(idle("n1", NOW_S, 10))
    recorder.add(idle("n1", NOW_S + 7, 10))
    assert (recorder.lost, recorder.problem) == (0, "")
    assert seconds(opened(), "n1") == 17
