"""Scoring on Ray: the same scores as in one process, a killed actor, and scoring without Ray."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from tests.service.conftest import campaign

from clustertwin.service.live.feeds.replay_feed import ReplayFeed
from clustertwin.service.live.ray_scorer import Part, RayScorer
from clustertwin.service.outgoing.service_metrics import render
from clustertwin.telemetry.detection.partition import split_by_job
from clustertwin.telemetry.moments.moment import Moment, moments

#: Code that was just compiled and code from the cache differ in the last bits; a score magnifies that.
NEAR = {"rtol": 1e-3, "atol": 1e-3}


@pytest.fixture(scope="module")
def moment() -> Moment:
    """A moment that two actors share."""
    many = [moment for moment, _ in moments(campaign(7, 0.3, nodes=6, job_types=("np",)))]
    return next(moment for moment in many if len(split_by_job(moment, 2)) == 2)


def test_a_part_survives_the_transfer(moment):
    rows = split_by_job(moment, 2)[1]
    there = Part.of(moment, rows).moment
    np.testing.assert_array_equal(there.values, moment.values[rows])
    np.testing.assert_array_equal(there.valid, moment.valid[rows])
    assert (there.end_s, there.jobs, len(there)) == (moment.end_s, moment.jobs, len(rows))


def until(scorer: RayScorer, detector, moment, fine, seconds: float = 120.0):
    """Score repeatedly, as a loop does."""
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        scores = scorer(detector, moment)
        if fine(scorer.state):
            return scores
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {scorer.state}")


@pytest.mark.real
@pytest.mark.slow
def test_two_ray_nodes_score_as_one_process_and_a_killed_actor_is_replaced(
    two_nodes, detector, moment, loop_of, bad_io, clock, monkeypatch
):
    monkeypatch.setattr("clustertwin.service.live.loop.TURN_S", 1e9)  # all threads in one turn, even on a slow machine
    expected = detector.score(moment)
    scorer = RayScorer(2, patience_s=60.0)
    try:
        first = scorer(detector, moment)
        assert "the service scores in its own process, not on Ray" in scorer.state.problem
        np.testing.assert_array_equal(first.score, expected.score)
        scores = until(scorer, detector, moment, lambda state: state.workers == 2 and not state.problem)
        np.testing.assert_allclose(scores.score, expected.score, **NEAR)
        pids = scorer.pids()
        assert len({*pids, os.getpid()}) == 3
        os.kill(pids[0], signal.SIGKILL)
        gap = until(scorer, detector, moment, lambda state: state.lost_total > 0)
        unknown = np.isnan(gap.score) & ~np.isnan(expected.score)
        assert 0 < unknown.sum() < len(moment)
        assert "the scores of some nodes are missing" in scorer.state.problem
        # The other actor takes them over at once …
        scores = scorer(detector, moment)
        assert scorer.state.workers == 1
        np.testing.assert_allclose(scores.score, expected.score, **NEAR)
        # … until the killed one is back.
        until(scorer, detector, moment, lambda state: state.workers == 2 and not state.problem)
        assert pids[0] not in scorer.pids()
        # A loop with this scorer publishes the same scores and the engine.
        loop = loop_of(ReplayFeed(bad_io, 1.0, clock), score=scorer)
        for clock.now_s in range(0, 200, 20):
            snapshot = loop.turn()
        alone = detector.score(snapshot.scored)
        np.testing.assert_allclose(snapshot.scores.score, alone.score, **NEAR)
        assert 'twin_engine_actors{state="ready"} 2' in render(loop.state)
    finally:
        scorer.close()


def test_without_ray_the_service_scores_in_its_own_process_and_says_why(detector, moment, monkeypatch, caplog):
    class NoRay:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**_: object) -> None:
            raise ConnectionError("no Ray at 10.0.0.1:6379")

    monkeypatch.setattr("clustertwin.service.live.ray_scorer.require", lambda *_: NoRay)
    scorer = RayScorer(2)
    scorer._started.exception()
    for number in (1, 2):
        scores = scorer(detector, moment)
        assert len(scores) == len(moment)
        assert scorer.state.fell_back_total == number
    problem = "the service scores in its own process, not on Ray: Ray could not be started: no Ray at 10.0.0.1:6379"
    assert scorer.state.problem == problem
    assert [record.message for record in caplog.records] == [problem]
