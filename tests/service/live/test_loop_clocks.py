"""The loop while a clock jumps: what it says until it scores again, and that it scores again."""

from __future__ import annotations

import numpy as np
import pytest
from tests.service.conftest import Clock
from tests.service.live.counting import Counting, live, play, warm_up


@pytest.mark.medium
@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
def test_scoring_continues_after_a_jump_of_the_clock(loop_of, clock, jump_s):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    warm_up(loop, clock, [source], 120)
    clock.now_s += jump_s
    after = play(loop, clock, [source], 130)
    assert (after.phase, after.events) == ("watching", ())
    assert after.scored.end_s > clock.now_s - 10
    assert not np.isnan(after.scores.score).all()


@pytest.mark.medium
@pytest.mark.parametrize("back_s", [101, 250, 299, 301])
def test_after_a_clock_set_back_over_a_window_the_loop_warms_up_again_and_says_so(loop_of, clock, back_s):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    warm_up(loop, clock, [source], 310, at_once=290)
    clock.now_s -= back_s
    assert play(loop, clock, [source], 20).phase == "warming-up"
    after = play(loop, clock, [source], 110)
    assert (after.phase, after.events, after.problems) == ("watching", (), ())
    assert after.scored.end_s > clock.now_s - 10


def test_a_clock_set_back_a_little_is_named_until_scoring_goes_on(loop_of, clock):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    warm_up(loop, clock, [source], 120)
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
    assert warm_up(loop, clock, [source], 120).phase == "watching"
    source.wrong = "http://a:9752: connection refused"
    for silent_s in range(60, 4000, 60):
        clock.now_s += 60
        down = loop.turn()
        assert (down.phase, down.lag_s) == ("stale", silent_s)


@pytest.mark.medium
@pytest.mark.parametrize("back_s", [6, 10, 29, 31, 60, 100, 150, 189])
def test_after_a_clock_set_back_the_loop_is_not_watching_until_it_scores_again(loop_of, clock, back_s):
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    scored = warm_up(loop, clock, [source], 120).scored
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


@pytest.mark.medium
@pytest.mark.parametrize("back_s", [10, 60, 150])
def test_while_the_loop_is_stale_no_node_is_watched(loop_of, clock, back_s):
    """The newest data of a node was from after now, so it was not old, and its phase stayed "watching"."""
    clock.now_s = 1_000_000.0
    source = Counting(clock)
    loop = loop_of(live(clock, source), stride_s=5)
    warm_up(loop, clock, [source], 120)
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
    warm_up(loop, clock, [source], 120)
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
