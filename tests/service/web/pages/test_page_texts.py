"""Texts that must agree with each other: open events and their verdicts, unusual threads, an ended replay."""

from __future__ import annotations

import re
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
from tests.service.sample_state import EVENT, WHY, scores, snapshot

from clustertwin.service.live.feeds.replay_feed import ReplayFeed
from clustertwin.service.live.loop import Loop
from clustertwin.service.store.quiet_periods import Silence
from clustertwin.service.web.pages import embedding
from clustertwin.telemetry.recording.trace_archive import GrowingRecordingArchive


def badge(client) -> str | None:
    """The number of open events in the navigation bar; None if it is hidden."""
    found = re.search(r'id="open-count"( hidden)?>(\d+)<', client.get("/").text)
    return None if found[1] else found[2]


@pytest.mark.parametrize("verdict", ["dismissed", "new-normal"])
def test_a_settled_event_is_neither_open_nor_in_the_badge(client, published, verdict):
    assert badge(client) == "1"
    published.store.vet(["e1"], verdict, who="ada", now_s=1.0)
    assert badge(client) is None
    for path in ("/", "/nodes/n1", "/events"):
        assert "/events/e1" not in client.get(path).text, path
    assert client.get("/api/v1/snapshot").json()["open_events"] == 0
    for path in ("/events?status=all", f"/events?verdict={verdict}"):
        assert "/events/e1" in client.get(path).text, path


def test_a_confirmed_event_stays_open(client, published):
    published.store.vet(["e1"], "confirmed", who="ada", now_s=1.0)
    assert badge(client) == "1"
    assert "/events/e1" in client.get("/events").text


def test_pages_of_open_events_are_full_without_the_settled_ones(client, published):
    many = [replace(EVENT, id=f"{i:03}", onset_s=i) for i in range(250)]
    published.store.write((event, WHY) for event in many)
    published.store.vet([f"{i:03}" for i in range(0, 250, 2)], "dismissed", who="ada", now_s=1.0)
    first, second = client.get("/events").text, client.get("/events?page=2").text
    assert "126 events, page 1 of 2" in first
    assert (first.count('name="event"'), second.count('name="event"')) == (100, 26)
    shown = re.findall(r'name="event" value="(\d+)"', first + second)
    assert len(set(shown)) == 125
    assert all(int(name) % 2 for name in shown)


def test_unusual_threads_without_an_open_event_are_explained(client, published):
    published.publish(replace(snapshot(), events=()), None)
    for path in ("/", "/nodes/n1"):
        text = client.get(path).text
        assert "2 threads are above the threshold now. An event opens when a job is harmed" in text, path


def test_without_unusual_threads_no_text_mentions_them(client, published):
    calm = tuple(replace(node, alarming=0) for node in snapshot().nodes)
    published.publish(replace(snapshot(), events=(), nodes=calm), None)
    assert "above the threshold now" not in client.get("/").text


def test_an_ended_replay_says_so_on_every_page(client, published):
    published.publish(snapshot(), None)
    assert "replay ended" not in client.get("/").text
    published.publish(replace(snapshot(), replay_ended=True), None)
    for path in ("/", "/events", "/nodes/n1", "/models"):
        text = client.get(path).text
        assert 'data-state="replay-ended">replay ended<' in text, path
        assert "The replay has ended." in text, path
        assert ">watching</span>\n    <time" not in text, path
    assert client.get("/api/v1/snapshot").json()["replay_ended"]


def test_a_live_service_never_says_that_a_replay_ended(client, published, bad_io):
    published.past = GrowingRecordingArchive(bad_io.directory)
    published.publish(replace(snapshot(), now_s=float(bad_io.end_s)), None)
    assert "replay ended" not in client.get("/").text


def test_the_snapshot_says_that_a_replay_has_ended_when_its_feed_has(published, bad_io, clock):
    begun: Future = Future()
    begun.set_exception(RuntimeError("no model is needed here"))
    loop = Loop(published, ReplayFeed(bad_io, 1.0, clock), begun, clock=clock)
    assert not loop.turn().replay_ended
    clock.now_s += 10.0**6
    assert loop.turn().replay_ended


def test_a_silence_covers_no_dismissed_event(client, published):
    published.store.quiet_periods.add_silence(Silence(99_999.0, job="17"), 10_000.0)
    assert "1 open event<" in client.get("/quiet").text
    published.store.vet(["e1"], "dismissed", who="ada", now_s=1.0)
    assert "0 open events<" in client.get("/quiet").text


@pytest.mark.parametrize(
    ("known", "title", "reason"),
    [
        ([0.5, 0.5], "Too few threads", "at least 3 threads. This source has 2 threads."),
        ([0.5, 0.5, np.nan], "Too few scored threads", "2 of 3 threads have a score."),
    ],
)
def test_an_empty_embedding_says_why(known, title, reason):
    picture, _ = embedding.points(replace(snapshot(), scores=scores(known)), None)
    assert picture["points"] == []
    assert picture["title"] == title
    assert reason in picture["reason"]


def test_before_the_first_score_the_embedding_says_when_it_appears():
    picture, _ = embedding.points(replace(snapshot(), scores=None, scored=None), None)
    assert (picture["title"], picture["reason"]) == ("No embeddings yet", "They appear here with the first scores.")


def test_the_heat_map_of_an_event_calls_its_channel_as_the_page_does(client, published):
    idle = replace(WHY, ratios=(replace(WHY.ratios[0], channel="other"),))
    published.store.write([(replace(EVENT, id="idle"), idle)])
    picture = client.get("/pictures/events/idle").json()
    assert (picture["channel"], picture["label"]) == ("other", "idle")
