"""Answers of exporters without a network: what one turn of the loop gets of them."""

from __future__ import annotations

import time
from concurrent.futures import Future

import numpy as np

from clustertwin.service.live.feeds import exporter_feed
from clustertwin.service.live.feeds.exporter_feed import ExporterFeed
from clustertwin.telemetry.ingest.counters import JobCpus, NodeReading
from clustertwin.telemetry.ingest.sources.http import Endpoint


def test_a_long_answer_is_used_in_parts_so_that_a_turn_of_the_loop_stays_short(monkeypatch):
    """An answer with 2,500 seconds of 1,000 new jobs each stopped the loop for twelve seconds."""
    monkeypatch.setattr(exporter_feed, "MOST_JOB_SECONDS", 100)
    feed = ExporterFeed([Endpoint("http://127.0.0.1:9"), Endpoint("http://127.0.0.1:9")])
    feed._rest_until_s = {0: time.time() + 20, 1: time.time() + 20}  # nobody is asked
    for number, node in enumerate("ab"):
        jobs = tuple(JobCpus(str(job), (0,)) for job in range(9))
        readings = [
            NodeReading(node, 1e6 + second, (0,), np.array([[second, 0.0]]), ("user", "idle"), jobs=jobs)
            for second in range(16)
        ]
        feed._sessions[number]._pages.node = node
        parsed: Future[exporter_feed.Parsed] = Future()
        parsed.set_result((readings, 20.0))
        feed._parsing[number] = parsed
    turns = [[trace.node for trace in feed.take()] for _ in range(5)]
    feed.close()
    assert [len(turn) for turn in turns] == [9, 9, 10, 2, 0]  # the first of ten readings has no second before it
    assert turns[:2] == [["a"] * 9, ["b"] * 9]  # the exporters take turns


def test_an_exporter_with_short_answers_that_take_long_to_parse_is_asked_less_often(monkeypatch):
    now_s, used_s = [1000.0], [0.0]
    feed = ExporterFeed([Endpoint("http://127.0.0.1:9")], clock=lambda: now_s[0])
    monkeypatch.setattr(time, "thread_time", lambda: used_s[0])

    def receive(body: bytes) -> list[NodeReading]:
        used_s[0] += 0.3
        return []

    monkeypatch.setattr(feed._sessions[0], "receive", receive)
    feed._traces(0, b"short")
    assert not feed._rests(0, now_s[0])  # once it may be the compiler
    feed._traces(0, b"short")
    assert feed._rests(0, now_s[0] + 2.9)
    assert not feed._rests(0, now_s[0] + 3.1)
    feed.close()
