"""Nodes whose clocks are wrong: their seconds are named and left out, and the seconds of others are kept."""

from __future__ import annotations

import numpy as np
from tests.service.conftest import Clock

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Trace
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.telemetry.ingest.rates import NONE
from clustertwin.telemetry.recording import Recording

HOUR_S = 3600
DAY_S = 24 * HOUR_S
NOW_S = 20_000 * DAY_S


def idle(node: str, start_s: int, seconds: int = 10) -> Trace:
    values = np.zeros((1, seconds, len(CPU)), np.float32)
    values[..., CPU.index("other")] = 1
    return Trace(node, (0,), start_s, CPU, values, np.ones((1, seconds), np.bool_))


class Given:
    """A feed that returns the traces of a list, one list in each turn."""

    source, pace, patient, faults, problems = "given", 1.0, False, NONE, ()

    def __init__(self, *turns: list[Trace]) -> None:
        self._turns = iter(turns)
        self.passed_s = 0.0

    def now_s(self) -> float:
        return float(NOW_S + 10 + self.passed_s)

    def take(self) -> list[Trace]:
        return next(self._turns, [])

    def close(self) -> None:
        pass


def test_a_node_from_the_future_does_not_delete_the_recording_of_others(loop_of, tmp_path):
    """Chunks expire by the newest second of the recording: one clock a month ahead deleted a week of all nodes."""
    recorder = LiveRecorder(tmp_path / "r", keep_s=7 * DAY_S)
    here = [idle("here", NOW_S - HOUR_S), idle("here", NOW_S)]
    ahead = [idle("odd", NOW_S + 30 * DAY_S), idle("odd", NOW_S + 30 * DAY_S + HOUR_S)]
    loop = loop_of(Given(here, ahead), recorder=recorder)
    loop.turn()
    snapshot = loop.turn()
    recorder.close()
    assert any("odd: its clock is" in problem for problem in snapshot.problems)
    recording = Recording.open(tmp_path / "r")
    assert set(recording.nodes) == {"here"}
    assert recording.trace("here", NOW_S - HOUR_S, NOW_S - HOUR_S + 10).valid.all()


def test_a_node_whose_clock_is_put_right_is_recorded_at_once(loop_of, tmp_path):
    """A recording takes no second twice, so a node that was a year ahead was not recorded for a year."""
    recorder = LiveRecorder(tmp_path / "r", keep_s=None)
    loop = loop_of(Given([idle("odd", NOW_S + 365 * DAY_S)], [idle("odd", NOW_S)]), recorder=recorder)
    loop.turn()
    loop.turn()
    recorder.close()
    assert (recorder.lost, recorder.problem) == (0, "")
    assert Recording.open(tmp_path / "r").trace("odd").valid.all()


def test_a_node_whose_clock_is_behind_is_named_until_it_is_right(loop_of):
    """It was read every second, and it was in no list and no problem, as if there were no such node."""
    late = [idle("odd", NOW_S - DAY_S), idle("odd", NOW_S - DAY_S + 10)]
    loop = loop_of(Given([idle("here", NOW_S), *late], [idle("odd", NOW_S - HOUR_S), idle("odd", NOW_S)]))
    snapshot = loop.turn()
    assert [node.node for node in snapshot.nodes] == ["here"]
    assert snapshot.problems == ("odd: its newest data is 86390 s old: is its clock behind?",)
    assert loop.turn().problems == ()


def test_a_node_that_is_gone_has_no_wrong_clock(loop_of):
    """The problem stayed for ever, if the node was removed before its clock was put right."""
    feed = Given([idle("odd", NOW_S + DAY_S)])
    loop = loop_of(feed)
    assert any("odd: its clock is" in problem for problem in loop.turn().problems)
    feed.passed_s = 30.0
    loop.turn()
    assert not any("clock" in problem for problem in loop.turn().problems)


def test_a_node_that_died_before_the_clock_was_set_back_does_not_hide_the_others(loop_of):
    """Its last second was the newest of all, so nothing newer was looked at until the clock had come there again."""
    feed = Given(
        [idle("here", NOW_S), idle("dead", NOW_S)], [idle("here", NOW_S - HOUR_S)], [idle("here", NOW_S - HOUR_S + 10)]
    )
    loop = loop_of(feed)
    loop.turn()
    feed.passed_s = -float(HOUR_S)
    loop.turn()
    feed.passed_s += 10
    moment = loop.turn().moment
    assert moment is not None
    assert moment.end_s == NOW_S - HOUR_S + 20


def test_a_clock_that_is_ahead_for_a_second_does_not_touch_the_recording(tmp_path):
    """That second was recorded, so a week of chunks expired, and every later second came too late."""
    clock = Clock(0.0)
    recorder = LiveRecorder(tmp_path / "r", keep_s=7 * DAY_S, clock=clock)
    for hour in range(4):
        clock.now_s = HOUR_S * hour
        recorder.add(idle("here", NOW_S + HOUR_S * hour))
    recorder.add(idle("here", NOW_S + 30 * DAY_S))
    assert "the clock jumped by +717 h" in recorder.problem
    clock.now_s += 10
    recorder.add(idle("here", NOW_S + 3 * HOUR_S + 10))
    assert (recorder.lost, recorder.problem) == (1, "")
    recorder.close()
    again = LiveRecorder(tmp_path / "r", keep_s=7 * DAY_S)
    again.add(idle("here", NOW_S + 4 * HOUR_S))
    again.close()
    trace = Recording.open(tmp_path / "r").trace("here")
    assert (trace.start_s, trace.end_s, int(trace.valid.sum())) == (NOW_S, NOW_S + 4 * HOUR_S + 10, 60)


def test_a_jump_of_the_clock_is_believed_after_ten_minutes(tmp_path):
    clock = Clock(0.0)
    recorder = LiveRecorder(tmp_path / "r", keep_s=None, clock=clock)
    recorder.add(idle("here", NOW_S))
    for clock.now_s in range(10, 700, 10):
        recorder.add(idle("here", NOW_S + 2 * DAY_S + int(clock.now_s)))
    assert (recorder.lost, recorder.problem) == (60, "")


def test_seconds_that_a_wrong_clock_has_recorded_before_a_start_are_moved_aside(tmp_path):
    clock = Clock(0.0)
    for start_s in (NOW_S - DAY_S, NOW_S + 30 * DAY_S):  # the second time, the clock is wrong at the start
        recorder = LiveRecorder(tmp_path / "r", keep_s=7 * DAY_S, clock=clock)
        recorder.add(idle("here", start_s))
        recorder.close()
    recorder = LiveRecorder(tmp_path / "r", keep_s=7 * DAY_S, clock=clock)
    for clock.now_s in range(0, 700, 10):
        recorder.add(idle("here", NOW_S + int(clock.now_s)))
    assert "has seconds after now: it is now" in recorder.problem
    recorder.close()
    assert Recording.open(tmp_path / "r-1").trace("here", NOW_S - DAY_S, NOW_S - DAY_S + 10).valid.all()
    assert Recording.open(tmp_path / "r").trace("here").valid.all()
