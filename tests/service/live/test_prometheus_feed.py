"""Prometheus as the source of the loop: what is asked, how often, and after an outage."""

from __future__ import annotations

import numpy as np
import pytest
from tests.service.conftest import Clock

from clustertwin.core.errors import NoSamples, SourceError
from clustertwin.service.live.feeds.prometheus_feed import PrometheusFeed
from clustertwin.telemetry.ingest.counters import MODES, NodeReading
from clustertwin.telemetry.ingest.rates import Faults


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


@pytest.mark.medium
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
