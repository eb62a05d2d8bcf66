"""Rounds of several turns: every thread is scored once, with the newest second at its turn."""

from __future__ import annotations

import numpy as np
import pytest
from tests.service.sample_state import scores
from tests.telemetry.detection.test_events import a_moment

from clustertwin.service.live import loop as loop_module
from clustertwin.service.live.feeds.replay_feed import ReplayFeed
from clustertwin.service.live.scoring_turns import ScoringRound
from clustertwin.service.store.event_store import Filter


def moment_of(nodes: str):
    return a_moment(1000, [""] * len(nodes), list(nodes))


def test_a_round_scores_every_thread_once_and_keeps_its_score_until_the_next():
    rounds, moment = ScoringRound(), moment_of("aabbccdd")
    rounds.begin(moment, 4)
    merged = []
    for number in range(4):
        rows = rounds.next(moment)
        latest = rounds.merge(moment, rows, scores([number] * (rows.stop - rows.start)))
        merged.append(latest.score.tolist())
    assert rounds.over
    nan = float("nan")
    np.testing.assert_array_equal(merged[1], [0, 0, 1, 1, nan, nan, nan, nan])
    assert merged[3] == [0, 0, 1, 1, 2, 2, 3, 3]
    rounds.begin(moment, 4)
    again = rounds.merge(moment, rounds.next(moment), scores([9, 9]))
    assert again.score.tolist() == [9, 9, 1, 1, 2, 2, 3, 3]
    assert merged[3] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_node_that_appears_within_a_round_is_scored_and_the_others_are_unknown_until_their_turn():
    rounds, before = ScoringRound(), moment_of("aabbdd")
    rounds.begin(before, 3)
    rounds.merge(before, rounds.next(before), scores([1, 1]))
    after = moment_of("aabbccdd")
    rows = rounds.next(after)
    assert rows == slice(2, 4)
    np.testing.assert_array_equal(
        rounds.merge(after, rows, scores([2, 2])).score, [np.nan] * 2 + [2] * 2 + [np.nan] * 4
    )
    assert rounds.next(after) == slice(4, 8)
    assert rounds.over


@pytest.mark.medium
def test_scoring_in_turns_gives_the_scores_of_scoring_at_once(bad_io, loop_of, state, clock, monkeypatch):
    monkeypatch.setattr(loop_module, "TURN_S", 1e-9)
    loop = loop_of(ReplayFeed(bad_io, 1.0, clock), stride_s=10)
    fresh = []
    for clock.now_s in (second + more for second in range(0, 400, 10) for more in (0, 1)):
        before = state.snapshot.scored
        snapshot = loop.turn()
        if snapshot.scored is not before:
            fresh.append(snapshot.scored.end_s - bad_io.start_s)
    assert fresh[:6] == [100, 101, 110, 111, 120, 121]  # two nodes, one after the other
    assert fresh[-2:] == [390, 391]
    expected = loop._score(loop._handover.detector, snapshot.scored).score
    second = snapshot.scored.node == 1
    np.testing.assert_allclose(snapshot.scores.score[second], expected[second], rtol=1e-4, atol=1e-4)
    assert state.store.count(Filter(open=True)) == len(snapshot.events) > 0
    assert {case.why.channel for case in state.store.events()} == {"iowait"}


@pytest.mark.medium
def test_a_round_goes_on_while_no_newer_second_arrives(bad_io, loop_of, clock, monkeypatch):
    """A source that is read every few seconds: each turn of a round waited for the next read."""
    monkeypatch.setattr(loop_module, "TURN_S", 1e-9)
    loop = loop_of(ReplayFeed(bad_io, 1.0, clock), stride_s=10)
    for clock.now_s in range(0, 400, 10):
        before, first, second, third = loop._now.scores, *(loop.turn() for _ in range(3))
    assert first.scored.end_s == second.scored.end_s == bad_io.start_s + 390
    later = second.scored.node == 1
    np.testing.assert_array_equal(first.scores.score[later], before.score[later])
    assert (second.scores.score[later] != before.score[later]).any()
    assert third.scored is second.scored  # the round is over


def test_a_slow_node_delays_a_few_others_but_not_many(bad_io, loop_of, clock):
    loop = loop_of(ReplayFeed(bad_io, 1.0, clock))
    for nodes, end_s in ((5, 997), (40, 1000)):
        loop._heard.heard_s = {f"n{i}": 1000 for i in range(nodes)} | {"n0": 997, "gone": 700}
        loop._arrived = {f"n{i}" for i in range(nodes)}
        assert loop._end_s(1000.0) == end_s


@pytest.mark.parametrize(("scoring_s", "stride_s", "parts"), [(0.1, 10, 1), (1.0, 10, 3), (9.0, 10, 5), (9.0, 1, 1)])
def test_the_turns_of_a_round_depend_on_its_work_and_on_half_the_stride(
    bad_io, loop_of, clock, scoring_s, stride_s, parts
):
    loop = loop_of(ReplayFeed(bad_io, 1.0, clock), stride_s=stride_s)
    loop._now = loop_module.replace(loop._now, scoring_s=scoring_s)
    assert loop._parts(moment_of("aabb")) == parts
