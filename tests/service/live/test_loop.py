"""The loop with the test's own clock: what it publishes, and how it handles faults."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.service.conftest import Clock, ready

from clustertwin.core.channels import CPU
from clustertwin.core.errors import NoSamples, OutputError, SourceError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.live.feeds.exporter_feed import ExporterFeed
from clustertwin.service.live.feeds.trace_feeds import LiveFeed, PrometheusFeed, ReplayFeed, Stream
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.stride import Stride
from clustertwin.service.store.event_store import Filter
from clustertwin.service.store.quiet_periods import MaintenanceWindow
from clustertwin.telemetry.detection.detector_store import with_sha256
from clustertwin.telemetry.ingest.counters import MODES, NodeReading
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.recording import Recording


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


class Counting:
    """A live source with two idle threads, whose counters the test advances."""

    def __init__(self, clock: Clock, node: str = "a") -> None:
        self.clock, self.node, self.wrong = clock, node, ""
        self.cpus: tuple[int, ...] = (0, 1)
        self.chance = np.random.default_rng(0)
        self.seconds = np.full((2, len(MODES)), 100.0)

    def work(self) -> None:
        """One second."""
        spent = self.chance.integers(0, 2, (2, len(MODES))) / 100 * np.isin(MODES, ("user", "system"))
        spent[:, MODES.index("idle")] = 1 - spent.sum(1)
        self.seconds += spent

    def readings(self) -> list[NodeReading]:
        if self.wrong:
            raise SourceError(self.wrong)
        return [NodeReading(self.node, self.clock.now_s, self.cpus, self.seconds[list(self.cpus)].copy())]


def play(loop, clock: Clock, sources: list[Counting], seconds: int):
    for _ in range(seconds):
        clock.now_s += 1
        for source in sources:
            source.work()
        loop.turn()
    return loop.state.snapshot


def live(clock: Clock, *sources: Counting) -> LiveFeed:
    return LiveFeed("test", [(source.node, source) for source in sources], clock)


def test_the_seconds_of_an_outage_are_unknown_and_it_is_a_problem_until_it_ends(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    assert play(loop, clock, [source], 120).phase == "watching"
    source.wrong = "http://a:9752: connection refused"
    down = play(loop, clock, [source], 40)
    assert (down.phase, down.problems) == ("stale", ("http://a:9752: connection refused",))
    source.wrong = ""
    up = play(loop, clock, [source], 130)
    assert (up.phase, up.problems, up.events) == ("watching", (), ())
    assert up.faults.gap > 0
    assert not np.isnan(up.scores.score).all()


def test_a_node_without_data_is_stale_and_the_other_is_still_scored(loop_of, clock):
    clock.now_s = 1_000_000.0
    here, gone = Counting(clock, "here"), Counting(clock, "gone")
    loop = loop_of(live(clock, here, gone), stride_s=5)
    play(loop, clock, [here, gone], 120)
    gone.wrong = "gone: no route to host"
    after = play(loop, clock, [here, gone], 60)
    assert {node.node: node.phase for node in after.nodes} == {"here": "watching", "gone": "stale"}
    assert after.phase == "watching"
    assert after.events == ()


def test_a_node_that_sends_nothing_does_not_delay_the_others(loop_of, clock):
    clock.now_s = 1_000_000.0
    here, gone = Counting(clock, "here"), Counting(clock, "gone")
    loop = loop_of(live(clock, here, gone), stride_s=10)
    play(loop, clock, [here, gone], 120)
    gone.wrong = "gone: no route to host"
    for _ in range(12):  # longer than a stride: between two scorings the age of the data is shown too
        after = play(loop, clock, [here, gone], 1)
        assert after.moment.end_s == clock.now_s
        assert {node.node: node.heard_s for node in after.nodes} == {"here": clock.now_s, "gone": 1_000_120}


def test_a_node_is_stale_between_two_scorings_too(loop_of, clock):
    clock.now_s = 1_000_000.0
    here, gone = Counting(clock, "here"), Counting(clock, "gone")
    loop = loop_of(live(clock, here, gone), stride_s=60)
    play(loop, clock, [here, gone], 165)
    gone.wrong = "gone: no route to host"
    phases = [{node.node: node.phase for node in play(loop, clock, [here, gone], 1).nodes} for _ in range(17)]
    assert phases[0] == {"here": "watching", "gone": "watching"}
    assert phases[-1] == {"here": "watching", "gone": "stale"}
    gone.wrong = ""
    assert {node.phase for node in play(loop, clock, [here, gone], 2).nodes} == {"watching"}


def test_a_node_that_is_late_but_sends_every_second_is_waited_for(loop_of, clock):
    clock.now_s = 1_000_000.0
    late_clock = Clock(clock.now_s - 3)
    here, late = Counting(clock, "here"), Counting(late_clock, "late")
    loop = loop_of(live(clock, here, late), stride_s=5)
    for _ in range(20):
        late_clock.now_s += 1
        late.work()
        after = play(loop, clock, [here], 1)
    assert after.moment.end_s == clock.now_s - 3
    assert after.moment.valid[:, -10:].all()


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
def test_scoring_continues_after_a_jump_of_the_clock(loop_of, clock, jump_s):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    play(loop, clock, [source], 120)
    clock.now_s += jump_s
    after = play(loop, clock, [source], 130)
    assert (after.phase, after.events) == ("watching", ())
    assert after.scored.end_s > clock.now_s - 10
    assert not np.isnan(after.scores.score).all()


@pytest.mark.parametrize("back_s", [101, 250, 299, 301])
def test_after_a_clock_set_back_over_a_window_the_loop_warms_up_again_and_says_so(loop_of, clock, back_s):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    play(loop, clock, [source], 310)
    clock.now_s -= back_s
    assert play(loop, clock, [source], 20).phase == "warming-up"
    after = play(loop, clock, [source], 110)
    assert (after.phase, after.events, after.problems) == ("watching", (), ())
    assert after.scored.end_s > clock.now_s - 10


def test_a_clock_set_back_a_little_is_named_until_scoring_goes_on(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    play(loop, clock, [source], 120)
    clock.now_s -= 60
    assert any(
        "the clock was set back; no thread is scored" in each for each in play(loop, clock, [source], 5).problems
    )
    after = play(loop, clock, [source], 65)
    assert (after.phase, after.problems) == ("watching", ())
    assert after.scored.end_s > clock.now_s - 10


def test_without_data_for_an_hour_the_loop_is_still_stale_and_the_lag_grows(loop_of, clock):
    """Its nodes are forgotten after an hour, and with them the phase was "watching" again, with a lag of 0 s."""
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    assert play(loop, clock, [source], 120).phase == "watching"
    source.wrong = "http://a:9752: connection refused"
    for silent_s in range(60, 4000, 60):
        clock.now_s += 60
        down = loop.turn()
        assert (down.phase, down.lag_s) == ("stale", silent_s)


@pytest.mark.parametrize("back_s", [6, 10, 29, 31, 60, 100, 150, 189])
def test_after_a_clock_set_back_the_loop_is_not_watching_until_it_scores_again(loop_of, clock, back_s):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    scored = play(loop, clock, [source], 120).scored
    clock.now_s -= back_s
    unscored_s = 4  # the last scoring was at the 116th second
    for _ in range(140):
        after = play(loop, clock, [source], 1)
        unscored_s = unscored_s + 1 if after.scored is scored else 0
        scored = after.scored
        assert after.phase != "watching" or unscored_s <= 20
        assert after.phase != "stale" or any("the clock was set back" in problem for problem in after.problems)
    assert (after.phase, after.problems, after.lag_s) == ("watching", (), 0.0)
    assert loop._tracker._times[-1][0] == after.scored.end_s  # a change from now on opens an event


@pytest.mark.parametrize("back_s", [10, 60, 150])
def test_while_the_loop_is_stale_no_node_is_watched(loop_of, clock, back_s):
    """The newest data of a node was from after now, so it was not old, and its phase stayed "watching"."""
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    play(loop, clock, [source], 120)
    clock.now_s -= back_s
    turns = [play(loop, clock, [source], 1) for _ in range(140)]
    stale = [turn for turn in turns if turn.phase == "stale"]
    assert stale
    assert {node.phase for turn in stale for node in turn.nodes} == {"stale"}
    assert [node.phase for node in turns[-1].nodes] == ["watching"]


def test_a_clock_that_was_set_back_is_no_problem_once_its_nodes_are_gone(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    play(loop, clock, [source], 120)
    clock.now_s -= 60
    assert any("set back" in problem for problem in play(loop, clock, [source], 5).problems)
    source.wrong = "down"
    for _ in range(62):
        clock.now_s += 60
        gone = loop.turn()
    assert (gone.phase, gone.problems) == ("stale", ("down",))


def test_a_node_whose_clock_is_ahead_is_a_problem_and_does_not_affect_others(loop_of, clock):
    clock.now_s = 1_000_000.0
    ahead = Clock(clock.now_s + 5000)
    here, odd = Counting(clock, "here"), Counting(ahead, "odd")
    loop = loop_of(live(clock, here, odd), stride_s=5)
    for _ in range(120):
        ahead.now_s += 1
        odd.work()
        after = play(loop, clock, [here], 1)
    assert [node.node for node in after.nodes] == ["here"]
    assert after.phase == "watching"
    assert any("odd: its clock is 5000 s ahead" in problem for problem in after.problems)


def test_threads_over_the_limit_are_refused_and_the_others_are_still_scored(state, detector, clock):
    clock.now_s = 1_000_000.0
    first, second = Counting(clock, "first"), Counting(clock, "second")
    loop = Loop(
        state,
        live(clock, first, second),
        ready(Handover(state.home, detector)),
        LoopSettings(stride_s=5, most_threads=3),
    )
    after = play(loop, clock, [first, second], 120)
    assert (after.phase, [node.node for node in after.nodes], len(after.scored)) == ("watching", ["first"], 2)
    assert any("second: the limit of 3 threads of all nodes is reached" in problem for problem in after.problems)


def test_restarted_counters_cause_no_event(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    play(loop, clock, [source], 120)
    source.seconds[:] = 0
    after = play(loop, clock, [source], 60)
    assert (after.events, after.faults.reset) == ((), 2)


def test_an_unplugged_cpu_is_unknown_and_the_others_are_still_scored(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    play(loop, clock, [source], 120)
    source.cpus = (0,)
    after = play(loop, clock, [source], 60)
    assert after.events == ()
    assert list(np.isnan(after.scores.score)) == [False, True]


def test_shuffled_and_duplicate_samples_do_not_change_the_result(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    feed = live(clock, source)
    real = source.readings
    source.readings = lambda: [*(batch := real()), *batch, replace(batch[0], time_s=batch[0].time_s - 3)]
    loop = loop_of(feed, stride_s=5)
    after = play(loop, clock, [source], 130)
    assert (after.phase, after.events) == ("watching", ())
    assert after.moment.valid[:, -100:].all()
    assert after.faults.late > 100
    assert after.faults.doubled > 100


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


def test_a_restart_continues_the_recording(loop_of, clock, tmp_path):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    for _ in range(2):
        recorder = LiveRecorder(tmp_path / "recording", keep_s=None)
        play(loop_of(live(clock, source), recorder=recorder), clock, [source], 30)
        recorder.close()
        assert recorder.problem == ""
    recording = Recording.open(tmp_path / "recording")
    assert (recording.start_s, recording.end_s) == (1_000_001, 1_000_060)
    assert recording.trace("a").valid.sum() == 2 * (29 + 29)


def test_scoring_continues_if_the_recording_cannot_be_written(loop_of, clock, tmp_path):
    (tmp_path / "recording").write_text("a file, not a directory")
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    after = play(
        loop_of(live(clock, source), recorder=LiveRecorder(tmp_path / "recording", keep_s=None)), clock, [source], 120
    )
    assert after.phase == "watching"
    assert any("recording failed" in problem for problem in after.problems)


class Answers:
    """A history that returns the given answers, each once."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.wrong, self.asked = clock, "", []

    def counters(self, start_s: float, end_s: float):
        self.asked.append((start_s, end_s))
        if self.wrong:
            raise SourceError(self.wrong)
        from clustertwin.telemetry.ingest.counters import JobCpus, stack

        times = np.arange(np.ceil(start_s), np.floor(end_s) + 1)
        readings = []
        for time_s in times:
            seconds = np.zeros((1, len(MODES)))
            seconds[0, 0] = time_s
            readings.append(NodeReading("p", float(time_s), (0,), seconds, jobs=(JobCpus("7", (0,)),)))
        return [stack(readings)]


def test_after_an_outage_prometheus_is_queried_for_the_missed_seconds_and_a_job_keeps_its_start(loop_of, clock):
    clock.now_s = 1_000_000.0
    server = Answers(clock)
    feed = PrometheusFeed("prometheus", server, clock)
    loop = loop_of(feed, stride_s=5)

    def play_on(seconds: int):
        for _ in range(seconds):
            clock.now_s += 1
            loop.turn()
            if feed._asked is not None:
                feed._asked.exception()  # wait for the answer

    play_on(5)
    server.wrong = "connection refused"
    play_on(60)
    assert loop.state.snapshot.phase == "stale"
    assert loop.state.snapshot.problems == ("connection refused",)
    server.wrong = ""
    play_on(60)
    snapshot = loop.state.snapshot
    assert snapshot.phase == "watching"
    assert snapshot.moment.valid.all()
    assert snapshot.moment.age_s[0] > 300
    assert isinstance(snapshot.faults, Faults)


@pytest.mark.parametrize("young_s", [None, 20], ids=["old", "young"])
def test_the_past_of_a_prometheus_is_read_in_parts_oldest_first(clock, young_s):
    """Also if it has no samples before the last seconds."""
    clock.now_s = 1_000_000.0
    first_s = clock.now_s - young_s if young_s else 0
    server = Answers(clock)
    answer, asked = server.counters, []

    def counters(start_s, end_s):
        asked.append(end_s - start_s)
        if end_s < first_s:
            raise NoSamples("none")
        return answer(max(start_s, first_s), end_s)

    server.counters = counters
    feed = PrometheusFeed("prometheus", server, clock)
    taken = []
    for _ in range(8):
        taken += feed.take()
        if feed._asked is not None:
            feed._asked.exception()  # wait for the answer
    assert max(asked) <= 64
    assert taken[-1].end_s == 999_998
    assert len(taken) == (1 if young_s else 5)
    assert not feed.problems


def test_a_prometheus_that_takes_long_is_asked_less_often_and_no_second_is_missed(clock):
    clock.now_s = 1_000_000.0
    server = Answers(clock)
    answer, asked = server.counters, []

    def slow(start_s, end_s):
        asked.append(end_s)
        clock.now_s += 0.9
        return answer(start_s, end_s)

    server.counters = slow
    feed = PrometheusFeed("prometheus", server, clock)
    taken = []
    for _ in range(40):
        taken += feed.take()
        if feed._asked is not None:
            feed._asked.exception()  # wait for the answer
        clock.now_s += 0.5
    assert set(np.diff(asked)[5:].tolist()) <= {4.0, 5.0}  # after the past, which is read in five parts
    assert [(a.end_s, a.valid.all()) for a in taken[:-1]] == [(b.start_s, True) for b in taken[1:]]


def test_a_node_that_prometheus_answers_wrongly_is_named_while_the_others_go_on(loop_of, clock):
    clock.now_s = 1_000_000.0
    server = Answers(clock)
    server.refused = {"liar:1": "http://p: cpu='zero' is not a hardware thread"}
    feed = PrometheusFeed("prometheus", server, clock)
    loop = loop_of(feed, stride_s=5)
    for _ in range(3):
        clock.now_s += 1
        loop.turn()
        feed._asked.exception()  # wait for the answer
    assert [node.node for node in loop.state.snapshot.nodes] == ["p"]
    assert loop.state.snapshot.problems == ("left out: http://p: cpu='zero' is not a hardware thread",)


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


def test_the_counters_of_another_node_do_not_continue_those_of_the_first(clock):
    stream, source = Stream(), Counting(clock)
    traces = []
    for second in range(6):
        clock.now_s = 1000.0 + second
        source.node = "first" if second < 3 else "second"
        source.work()
        traces += stream.push(source.readings())
    assert [(trace.node, trace.start_s) for trace in traces] == [
        ("first", 1000),
        ("first", 1001),
        ("second", 1003),
        ("second", 1004),
    ]


def test_an_exporter_that_is_another_node_now_releases_its_old_name():
    feed = ExporterFeed([Endpoint("http://a:9752"), Endpoint("http://b:9752")])
    for number, node in ((0, "n1"), (0, "n2"), (1, "n1")):
        feed._sessions[number]._pages.node = node
        feed._hold_name(number)
    feed._sessions[0]._pages.node = "n1"
    with pytest.raises(SourceError, match="says that it is n1, but http://b:9752 has that name"):
        feed._hold_name(0)
    feed.close()
