"""The loop with the test's own clock: what it publishes, and how it handles a full disk and new champions."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.errors import OutputError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.live.feeds.replay_feed import ReplayFeed
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.stride import Stride
from clustertwin.service.store.event_store import Filter
from clustertwin.service.store.quiet_periods import MaintenanceWindow
from clustertwin.telemetry.detection.detector_store import with_sha256
from clustertwin.telemetry.learning.champions.handover import Handover


@pytest.mark.medium
def test_bad_io_becomes_events_whose_explanation_names_iowait(watched, bad_io):
    afflicted = {span.job for span in bad_io.spans if span.anomaly}
    cases = [case for case in watched.state.store.events() if set(case.event.jobs) & afflicted]
    assert len(cases) >= 2
    assert {case.why.channel for case in cases} == {"iowait"}
    assert all("iowait" in case.why.sentence for case in cases)
    assert "bad-io" in {case.why.nearest[0][0] for case in cases} <= {"bad-io", "slow-io"}
    assert all(case.event.model == watched.state.snapshot.model.version for case in cases)


def test_the_loop_warms_up_until_the_hundredth_second(bad_io, loop_of, clock):
    loop = loop_of(ReplayFeed(bad_io, 1.0, clock))
    phases = []
    for second in range(106):
        clock.now_s = second + 0.05
        snapshot = loop.turn()
        phases.append(snapshot.phase)
        assert snapshot.number == second + 1
        if second == 50:
            assert (snapshot.ready_in_s, len(snapshot.nodes), snapshot.nodes[0].phase) == (50, 2, "warming-up")
            assert snapshot.moment.end_s == bad_io.start_s + 50
    assert phases[99] == "warming-up"
    assert phases[-1] == "watching"


def test_a_replay_hides_pauses_and_jobs_that_have_not_begun(clock):
    values = np.zeros((2, 10, len(CPU)), np.float32)
    spans = (
        JobSpan("1", "n1", (0,), 0, 9, "np", anomaly="bad-io", onset_s=3),
        JobSpan("pause", "n1", (1,), 0, 9, "idle"),
        JobSpan("2", "n1", (1,), 9, 10, "np"),
    )
    trace = Trace("n1", (0, 1), 0, CPU, values, np.ones((2, 10), np.bool_), spans)
    recorded = SimpleNamespace(directory=Path("night"), start_s=0, end_s=10, nodes=("n1",), trace=lambda *_: trace)
    feed = ReplayFeed(recorded, 1.0, clock)
    feed.now_s()
    clock.now_s = 5.0
    (trace,) = feed.take()
    assert trace.spans == (JobSpan("1", "n1", (0,), 0, 9, "np"),)


def test_a_replay_waits_for_its_detector(bad_io, state, clock, detector):
    coming = Future()
    loop = Loop(state, ReplayFeed(bad_io, 20.0, clock), coming)
    for clock.now_s in range(100):
        assert (loop.turn().phase, loop.state.snapshot.moment) == ("warming-up", None)
    coming.set_result(Handover(state.home, detector))
    loop.turn()
    clock.now_s += 1
    assert loop.turn().now_s == bad_io.start_s + 20


def test_the_snapshot_agrees_with_its_own_scores(watched):
    snapshot = watched.state.snapshot
    moment, scores = snapshot.scored, snapshot.scores
    for state in snapshot.nodes:
        node_scores = scores.score[moment.node == moment.nodes.index(state.node)]
        assert state.threads == len(node_scores)
        assert state.alarming == int((node_scores > snapshot.threshold).sum())
        assert state.score == pytest.approx(np.nanmax(node_scores), nan_ok=True)
    assert sum(state.threads for state in snapshot.jobs) == int((moment.job >= 0).sum())
    assert snapshot.history.score.shape == (2, len(snapshot.history.times_s))


@pytest.mark.medium
def test_a_node_in_maintenance_has_no_events(bad_io, loop_of, state, clock):
    state.store.quiet_periods.add_maintenance(MaintenanceWindow(("n*",), 0, bad_io.end_s + 1), now_s=0)
    loop = loop_of(ReplayFeed(bad_io, 1.0, clock), stride_s=30)
    for clock.now_s in range(0, 1200, 30):
        loop.turn()
    assert state.store.count() == 0
    assert {node.phase for node in state.snapshot.nodes} == {"maintenance"}


def test_a_restarted_loop_continues_its_open_events(bad_io, loop_of, state, clock):
    loop = loop_of(ReplayFeed(bad_io, 1.0, clock))
    while not loop.turn().events:
        clock.now_s += 10
    before = [event.id for event in state.snapshot.events]
    again = loop_of(ReplayFeed(bad_io, 1.0, clock))
    assert [event.id for event in again.turn().events] == before
    assert state.store.count(Filter(open=True)) == len(before)


def test_the_loop_is_told_by_its_feed_which_jobs_are_suspended(bad_io, loop_of, clock):
    job, other = sorted({span.job for span in bad_io.spans})[:2]

    class BesideSlurm(ReplayFeed):
        suspended = frozenset({job})

    loop = loop_of(BesideSlurm(bad_io, 1.0, clock), stride_s=30)
    for clock.now_s in range(0, 300, 30):
        loop.turn()
    assert [loop._questions.label(name).suspended for name in (job, other)] == [True, False]


def test_a_full_disk_keeps_events_until_there_is_room(bad_io, loop_of, state, clock, monkeypatch):
    real = state.store.write

    def full(events):
        if list(events):
            raise OutputError("state.sqlite: database or disk is full")

    monkeypatch.setattr(state.store, "write", full)
    loop = loop_of(ReplayFeed(bad_io, 1.0, clock))
    while not loop.turn().events:
        clock.now_s += 10
    loop.turn()
    assert any("are not stored yet" in problem for problem in state.snapshot.problems)
    assert state.store.count() == 0
    monkeypatch.setattr(state.store, "write", real)
    loop.turn()
    assert not state.snapshot.problems
    assert {case.id for case in state.store.events()} == {event.id for event in state.snapshot.events}
    assert all(case.why for case in state.store.events())


def test_a_damaged_champion_is_refused_and_the_previous_one_stays(bad_io, loop_of, state, clock, detector):
    from clustertwin.telemetry.learning.champions import champion_store, version_store

    version = version_store.add_version(state.home, detector, {})
    champion_store.promote(state.home, version, 1, "test", 0.0)
    weights = state.home / "models" / version / "weights.safetensors"
    flipped = bytearray(weights.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    weights.write_bytes(flipped)
    loop = loop_of(ReplayFeed(bad_io, 1.0, clock))
    for clock.now_s in range(0, 150, 10):
        snapshot = loop.turn()
    assert snapshot.phase == "watching"
    assert snapshot.model.refused_total == 1
    assert "SHA-256" in snapshot.model.refused[0]


def test_a_new_champion_is_loaded_between_two_scorings(bad_io, loop_of, state, clock, detector):
    from clustertwin.telemetry.learning.champions import champion_store, version_store

    loop = loop_of(ReplayFeed(bad_io, 1.0, clock))
    for clock.now_s in range(0, 150, 10):
        snapshot = loop.turn()
    assert snapshot.model.origin == "bundled"
    stricter = with_sha256(replace(detector, settings=replace(detector.settings, false_alarm_rate=1e-5)))
    champion_store.promote(state.home, version_store.add_version(state.home, stricter, {}), 1, "test", 0.0)
    clock.now_s += 10
    snapshot = loop.turn()
    assert (snapshot.model.origin, snapshot.model.version) == ("champion", stricter.version)
    assert snapshot.threshold == pytest.approx(5.0)


def test_the_stride_is_raised_at_once_and_lowered_slowly():
    stride = Stride(1)
    stride.update(3.0)
    assert (stride.seconds, "more than half" in stride.why) == (10, True)
    for _ in range(9):
        stride.update(0.1)
    assert stride.seconds == 10
    stride.update(0.1)
    assert stride.seconds == 5
    for _ in range(20):
        stride.update(0.1)
    assert (stride.seconds, stride.why) == (1, "as configured")
