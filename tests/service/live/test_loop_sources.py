"""The loop and its live sources: outages, late and silent nodes, odd counters, and the recording of what they send."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.service.conftest import Clock, ready
from tests.service.live.counting import Counting, live, play, warm_up

from clustertwin.core.errors import SourceError
from clustertwin.service.live.feeds.exporter_feed import ExporterFeed
from clustertwin.service.live.feeds.reading_stream import Stream
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.recording import Recording


def test_the_seconds_of_an_outage_are_unknown_and_it_is_a_problem_until_it_ends(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    assert warm_up(loop, clock, [source], 120).phase == "watching"
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
    warm_up(loop, clock, [here, gone], 120)
    gone.wrong = "gone: no route to host"
    after = play(loop, clock, [here, gone], 60)
    assert {node.node: node.phase for node in after.nodes} == {"here": "watching", "gone": "stale"}
    assert after.phase == "watching"
    assert after.events == ()


def test_a_node_that_sends_nothing_does_not_delay_the_others(loop_of, clock):
    clock.now_s = 1_000_000.0
    here, gone = Counting(clock, "here"), Counting(clock, "gone")
    loop = loop_of(live(clock, here, gone), stride_s=10)
    warm_up(loop, clock, [here, gone], 120)
    gone.wrong = "gone: no route to host"
    for _ in range(12):  # longer than a stride: between two scorings the age of the data is shown too
        after = play(loop, clock, [here, gone], 1)
        assert after.moment.end_s == clock.now_s
        assert {node.node: node.heard_s for node in after.nodes} == {"here": clock.now_s, "gone": 1_000_120}


def test_a_node_is_stale_between_two_scorings_too(loop_of, clock):
    clock.now_s = 1_000_000.0
    here, gone = Counting(clock, "here"), Counting(clock, "gone")
    loop = loop_of(live(clock, here, gone), stride_s=60)
    warm_up(loop, clock, [here, gone], 165)
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


def test_threads_over_the_limit_are_refused_and_the_others_are_still_scored(state, detector, clock):
    clock.now_s = 1_000_000.0
    first, second = Counting(clock, "first"), Counting(clock, "second")
    loop = Loop(
        state,
        live(clock, first, second),
        ready(Handover(state.home, detector)),
        LoopSettings(stride_s=5, most_threads=3),
    )
    after = warm_up(loop, clock, [first, second], 120)
    assert (after.phase, [node.node for node in after.nodes], len(after.scored)) == ("watching", ["first"], 2)
    assert any("second: the limit of 3 threads of all nodes is reached" in problem for problem in after.problems)


def test_restarted_counters_cause_no_event(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    warm_up(loop, clock, [source], 120)
    source.seconds[:] = 0
    after = play(loop, clock, [source], 60)
    assert (after.events, after.faults.reset) == ((), 2)


def test_an_unplugged_cpu_is_unknown_and_the_others_are_still_scored(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    warm_up(loop, clock, [source], 120)
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
    after = warm_up(
        loop_of(live(clock, source), recorder=LiveRecorder(tmp_path / "recording", keep_s=None)), clock, [source], 120
    )
    assert after.phase == "watching"
    assert any("recording failed" in problem for problem in after.problems)


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
