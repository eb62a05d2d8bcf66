"""Nothing ends the loop, and nothing hides that it stands still: what fails is left out, named and counted."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from dataclasses import replace

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service import sample_state
from tests.service.conftest import Clock, ready
from tests.service.live.counting import Counting, live, play, warm_up

from clustertwin.core.channels import CPU, JOB
from clustertwin.core.errors import InputError, OutputError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.live.feeds.thread_growth import MOST_TIMES, ThreadGrowth
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.problems import problems
from clustertwin.service.live.scorer import InProcessScorer
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.live.turn_failures import GIVE_UP_AFTER, QUARANTINE_S, LoopFailed
from clustertwin.service.outgoing import service_metrics, systemd_notify
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.ingest.counters import JobCpus, NodeReading
from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.recording.logs import label_log

BEGIN_S = 1_000_000.0


def begun(clock: Clock, *names: str) -> list[Counting]:
    clock.now_s = BEGIN_S
    return [Counting(clock, name) for name in names]


def test_an_exception_of_a_source_is_named_and_the_next_second_goes_on(loop_of, clock):
    (source,) = begun(clock, "a")
    feed = live(clock, source)
    loop = loop_of(feed, stride_s=5)
    warm_up(loop, clock, [source], 120)
    real, feed.take = feed.take, lambda: 1 / 0
    failed = play(loop, clock, [source], 1)
    assert any("ZeroDivisionError" in problem for problem in failed.problems)
    assert dict(failed.failures_total) == {"source": 1}
    feed.take = real
    after = play(loop, clock, [source], 3)
    assert (after.phase, after.problems) == ("watching", ())


def test_a_source_that_raises_a_foreign_error_leaves_the_others_alone(loop_of, clock):
    honest, liar = begun(clock, "honest", "liar")
    loop = loop_of(live(clock, honest, liar), stride_s=5)
    liar.readings = lambda: [int("9" * 5000)]
    after = warm_up(loop, clock, [honest, liar], 120)
    assert after.phase == "watching"
    assert [problem for problem in after.problems if problem.startswith("liar: ValueError")]


def test_a_node_whose_trace_cannot_be_used_is_left_out_alone_for_a_minute(loop_of, clock):
    (source,) = begun(clock, "honest")
    feed = live(clock, source)
    loop = loop_of(feed, stride_s=5)
    real, lies = feed.take, [True]

    def take() -> list[Trace]:
        start_s = int(clock.now_s) - 1
        torn = Trace("liar", (0, 1), start_s, CPU, np.zeros((1, 1, len(CPU)), np.float32), np.ones((1, 1), bool))
        return [*([torn] if lies[0] else []), *real()]

    feed.take = take
    after = play(loop, clock, [source], 120)
    assert after.phase == "watching"
    assert [node.node for node in after.nodes] == ["honest"]
    assert [problem for problem in after.problems if problem.startswith("liar: its data is left out")]
    assert 1 <= dict(after.failures_total)["node"] <= 3
    lies[0] = False
    assert play(loop, clock, [source], int(QUARANTINE_S) + 2).problems == ()


def test_a_store_that_cannot_be_read_or_written_does_not_stop_scoring(loop_of, state, clock, monkeypatch):
    (source,) = begun(clock, "a")
    loop = loop_of(live(clock, source), stride_s=5)
    warm_up(loop, clock, [source], 110)

    def damaged(*_: object) -> None:
        raise ValueError("database disk image is malformed")

    monkeypatch.setattr(state.store.quiet_periods, "maintenance", damaged)
    monkeypatch.setattr(state.store, "write", damaged)
    after = play(loop, clock, [source], 20)
    assert after.phase == "watching"
    assert after.scored.end_s >= clock.now_s - 10
    assert any("malformed" in problem for problem in after.problems)


@pytest.mark.medium
@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe\x00", b"[" * 100_000, b'{"version": 5, "sha256": "", "fence": 1}', b"x" * (2 << 20), b"null", b"NaN",
     b'{"version": "\\ud800", "sha256": "", "fence": 1}', b'{"version": "a", "sha256": "", "fence": 1e999}'],
    ids=["not UTF-8", "nested", "number", "long", "null", "nan", "surrogate", "infinite"],
)  # fmt: skip
def test_a_champion_file_that_is_none_is_refused_and_named(loop_of, state, clock, text):
    (source,) = begun(clock, "a")
    loop = loop_of(live(clock, source), stride_s=5)
    (state.home / champion_store.FILE).write_bytes(text)
    after = warm_up(loop, clock, [source], 120)
    assert after.phase == "watching"
    assert (after.model.origin, after.model.refused_total) == ("bundled", 1)
    assert any("the new champion is refused" in problem and "champion.json" in problem for problem in after.problems)


class Refusing(InProcessScorer):
    """Fails with one version."""

    version = ""

    def __call__(self, detector, moment):
        if detector.version == self.version:
            raise RuntimeError("shapes do not match")
        return super().__call__(detector, moment)


def test_a_champion_that_cannot_score_is_withdrawn(state, clock, detector):
    (source,) = begun(clock, "a")
    handover, scorer = Handover(state.home, detector), Refusing()
    loop = Loop(state, live(clock, source), ready(handover), score=scorer)
    warm_up(loop, clock, [source], 110)
    handover.before, handover.detector, handover.taken = detector, replace(detector, sha256="f" * 64), 1
    scorer.version = handover.detector.version
    assert scorer.version != detector.version
    after = play(loop, clock, [source], 15)
    assert after.model.version == detector.version
    assert after.scored.end_s >= clock.now_s - 10
    assert any("cannot score: RuntimeError: shapes do not match" in problem for problem in after.problems)


def test_scoring_that_always_fails_begins_again_and_the_page_says_so(state, clock, detector):
    (source,) = begun(clock, "a")
    scorer = Refusing()
    loop = Loop(state, live(clock, source), ready(Handover(state.home, detector)), score=scorer)
    warm_up(loop, clock, [source], 110)
    scorer.version = detector.version
    failed = play(loop, clock, [source], 6)
    assert "this second could not be scored: RuntimeError: shapes do not match" in failed.problems
    failed = play(loop, clock, [source], 15)
    assert any("no second could be scored, so the seconds" in problem for problem in failed.problems)
    scorer.version = ""
    assert play(loop, clock, [source], 110).problems == ()


def test_the_loop_gives_up_when_every_turn_fails(loop_of, clock):
    (source,) = begun(clock, "a")
    feed = live(clock, source)
    loop = loop_of(feed)
    feed.take = lambda: 1 / 0
    loop._pause_s = lambda: 0.0
    with pytest.raises(LoopFailed, match=f"failed {GIVE_UP_AFTER} times in a row.*ZeroDivisionError"):
        loop.run(threading.Event())


def test_a_loop_that_stands_still_shows_everywhere(tmp_path, app, state, clock):
    from clustertwin.service.application import create_app

    store = Store(tmp_path / "state.sqlite")
    still = ServiceState(tmp_path, store, clock=clock)
    still.snapshot = replace(still.snapshot, number=7, phase="watching", lag_s=0.1)
    still.standing_after_s = 15.0
    client = TestClient(create_app(still), base_url="http://localhost")
    clock.now_s = 14.0
    assert client.get("/api/v1/snapshot").json()["phase"] == "watching"
    clock.now_s = 61.0
    shown = client.get("/api/v1/snapshot").json()
    assert (shown["phase"], shown["lag_s"]) == ("stale", 61.1)
    assert "stands still: it has published nothing for 61 s" in problems(still)[0]
    assert "stands still" in client.get("/").text
    assert client.get("/healthz").status_code == 503
    page = service_metrics.render(still)
    assert "twin_loop_snapshot_age_seconds 61\n" in page
    assert 'twin_loop_phase{phase="stale"} 1\n' in page
    store.close()


def test_no_node_is_watched_by_a_loop_that_stands_still(tmp_path, clock):
    store = Store(tmp_path / "state.sqlite")
    still = ServiceState(tmp_path, store, clock=clock)
    watched = sample_state.snapshot()
    in_maintenance = replace(watched.nodes[0], node="n3", phase="maintenance")
    still.snapshot = replace(watched, nodes=(*watched.nodes, in_maintenance))
    still.standing_after_s = 15.0
    assert [node.phase for node in still.snapshot.nodes] == ["watching", "stale", "maintenance"]
    clock.now_s = 61.0
    assert [node.phase for node in still.snapshot.nodes] == ["stale", "stale", "maintenance"]
    store.close()


def test_systemd_hears_that_the_loop_is_alive(tmp_path, monkeypatch, loop_of, clock):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(os.fspath(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", os.fspath(tmp_path / "notify"))
        (source,) = begun(clock, "a")
        stop = threading.Event()

        def beat() -> None:
            systemd_notify.notify("WATCHDOG=1")
            stop.set()

        loop_of(live(clock, source), beat=beat).run(stop)
        assert listener.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("part", ["", "n1", "zarr.json"])
def test_a_recording_deleted_while_it_is_written_is_named_and_begins_again(part, tmp_path):
    """`rm -rf recording`, of the whole or of a part: every later second was lost before."""
    recorder = LiveRecorder(tmp_path / "recording", None)
    values = np.zeros((2, 5, 4), np.float32)
    values[..., 3] = 1
    for start_s in range(60, 300, 5):
        if start_s == 120:
            target = tmp_path / "recording" / part
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        recorder.add(Trace("n1", (0, 1), start_s, CPU, values, np.ones((2, 5), np.bool_)))
    assert recorder.lost == 0
    if part != "zarr.json":  # without its document, the recording goes on until the next start
        assert "was deleted while the service ran" in recorder.problem
    recorder.close()
    if part != "zarr.json":
        recording = Recording.open(tmp_path / "recording")
        assert recording.trace("n1", 140, 300).valid.all()
    again = LiveRecorder(tmp_path / "recording", None)
    again.add(Trace("n1", (0, 1), 300, CPU, values, np.ones((2, 5), np.bool_)))
    assert (part == "zarr.json") == ("had lost its zarr.json" in again.problem)
    again.close()
    assert Recording.open(tmp_path / "recording").trace("n1", 300, 305).valid.all()


def test_the_end_of_a_job_is_recorded_although_the_disk_was_full_then(tmp_path, monkeypatch):
    """Its label was lost, so that the job seemed to run on until the next start."""

    def full(path, spans):
        raise OutputError(f"{path}: cannot write: No space left on device")

    recorder = LiveRecorder(tmp_path / "recording", None)
    values = np.zeros((2, 5, 4), np.float32)
    values[..., 3] = 1
    known = np.ones((2, 5), np.bool_)
    recorder.add(Trace("n1", (0, 1), 60, CPU, values, known, (JobSpan("7", "n1", (0, 1), 60.0, 65.0),)))
    with monkeypatch.context() as patch:
        patch.setattr(label_log, "append", full)
        recorder.add(Trace("n1", (0, 1), 65, CPU, values, known))
    assert "No space left on device" in recorder.problem
    recorder.add(Trace("n1", (0, 1), 70, CPU, values, known))
    assert recorder.problem == ""
    assert [span.end_s for span in Recording.open(tmp_path / "recording").spans] == [65.0]
    recorder.close()


@pytest.mark.parametrize("restart", [False, True])
def test_threads_that_a_machine_gets_later_are_recorded(restart, tmp_path):
    """A machine got more CPUs, or switched some on: they were left out for good, and nobody was told."""
    recorder = LiveRecorder(tmp_path / "recording", None)
    for start_s, cpus in ((60, (0, 1)), (65, (0,)), (70, (0, 1, 2)), (75, (0, 1, 2))):
        values = np.zeros((len(cpus), 5, 4), np.float32)
        values[..., 3] = 1
        recorder.add(Trace("n1", cpus, start_s, CPU, values, np.ones((len(cpus), 5), np.bool_)))
        assert (recorder.lost, recorder.problem) == (0, "")
        if restart:
            recorder.close()
            recorder = LiveRecorder(tmp_path / "recording", None)
    recorder.close()
    assert Recording.open(tmp_path / "recording").trace("n1", 60, 80).valid.sum(1).tolist() == [20, 15, 10]


def test_a_refused_champion_that_is_deleted_is_no_problem_any_more(loop_of, clock, state):
    (source,) = begun(clock, "a")
    loop = loop_of(live(clock, source), stride_s=5)
    state.home.mkdir(exist_ok=True)
    (state.home / "champion.json").write_bytes(b"\xff")
    assert any("the new champion is refused" in problem for problem in loop.turn().problems)
    (state.home / "champion.json").unlink()
    assert loop.turn().problems == ()


def test_a_node_that_invents_threads_again_and_again_is_left_out_alone(loop_of, clock):
    good, liar = begun(clock, "good", "liar")
    liar.seconds = np.full((200, liar.seconds.shape[1]), 100.0)
    work = liar.work

    def invent() -> None:
        work()
        liar.cpus = (*liar.cpus, len(liar.cpus))

    def spend() -> None:
        liar.seconds[:, 3] += 1.0

    work, liar.work = spend, invent
    loop = loop_of(live(clock, good, liar), stride_s=5)
    for _ in range(MOST_TIMES + 10):
        after = play(loop, clock, [good, liar], 1)
        assert {node.node: node.heard_s for node in after.nodes}.get("good", clock.now_s) == clock.now_s
    assert any(
        "liar: its data is left out" in problem and "new threads 17 times" in problem for problem in after.problems
    )
    assert "liar" not in loop._buffer.nodes


class NamelessJob(Counting):
    """A node whose job has no name."""

    def read(self) -> NodeReading:
        operands = np.full((1, len(JOB), 2), np.nan)
        operands[0, JOB.index("job_memory")] = 100, 1000
        return replace(super().read(), jobs=(JobCpus("", self.cpus),), job_operands=operands)


def test_a_node_whose_job_has_no_name_is_left_out_alone(loop_of, clock):
    """The memory of that job was taken for that of the node: every turn failed, until the service ended."""
    (good,) = begun(clock, "good")
    liar = NamelessJob(clock, "liar")
    loop = loop_of(live(clock, good, liar), stride_s=5)
    after = play(loop, clock, [good, liar], 70)
    assert [(node.node, node.heard_s) for node in after.nodes] == [("good", clock.now_s)]
    assert any("liar: its data is left out for 60 s" in problem for problem in after.problems)
    assert loop._failures.turns_in_a_row == 0


def test_threads_that_were_known_before_are_not_new():
    growth = ThreadGrowth(3600.0)
    for second in range(1000):
        growth.check("n", (0, 1, 2, 3) if second % 2 else (0, 1), float(second))
    for second in range(0, 100_000, 1000):
        growth.check("slow", tuple(range(second // 1000 + 1)), float(second))
    for count in range(1, MOST_TIMES + 2):
        growth.check("fast", tuple(range(count)), float(count))
    with pytest.raises(InputError, match="new threads 17 times"):
        growth.check("fast", tuple(range(MOST_TIMES + 2)), 100.0)
