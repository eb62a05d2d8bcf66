"""Senders that push more than there is room for: who makes room, what is said, and how often series are tried again."""

from __future__ import annotations

import pytest
from tests.telemetry.ingest.pushed.test_pushed_samples import Labels, Pushes, cpu, info, threads_of

from clustertwin.telemetry.ingest.pushed import crowded_senders, pushed_samples
from clustertwin.telemetry.ingest.pushed.crowded_senders import CROWDED_S, SAID_S

NODES, SERIES = (f"a pushes more than its share; its new{what} are left out" for what in ("est nodes", " series"))


@pytest.fixture
def room() -> Pushes:
    """Room for 64 threads."""
    pushes = Pushes()
    pushes.samples.most_threads = 64
    return pushes


def nodes(sender: str, first: int, last: int) -> list[Labels]:
    """Nodes with one thread each."""
    return [cpu(0, "user", f"{sender}:{number}") for number in range(first, last)]


def test_a_sender_makes_room_only_for_what_it_has_above_its_share(room: Pushes) -> None:
    room.at(0, nodes("a", 0, 33), [0], sender="a")
    room.at(0, nodes("b", 0, 32), [0], sender="b")
    assert (threads_of(room, "a"), threads_of(room, "b")) == (32, 32)


def test_a_sender_with_its_share_is_told_how_much_room_is_in_use(room: Pushes) -> None:
    room.at(0, nodes("b", 0, 10), [0], sender="b")
    room.at(0, nodes("a", 0, 70), [0], sender="a")
    assert room.samples.refused["a:50"] == (
        "a:50 (pushed by a): no room for more threads: 60 of 64 are in use, and a has its share"
    )


def test_what_is_left_out_of_a_sender_is_said_until_a_minute_after_it_was_so(room: Pushes) -> None:
    room.at(0, nodes("b", 0, 10), [0], sender="b")
    room.at(0, nodes("a", 0, 70), [0], sender="a")
    assert [*room.samples.crowded.said] == [NODES]
    room.samples.most_threads = 66
    room.at(1, nodes("a", 0, 70), [1], sender="a")
    assert threads_of(room, "a") == 52
    assert [*room.samples.crowded.said] == [NODES]  # some of them are back, and others are not
    room.samples.most_threads, room.samples._registry.most_series = 100, 100
    room.at(2, nodes("a", 0, 75), [2], sender="a")
    assert threads_of(room, "a") == 70
    assert [*room.samples.crowded.said] == [NODES, SERIES]
    room.at(SAID_S, nodes("a", 0, 75), [SAID_S], sender="a")
    room.readings(SAID_S + 2)
    assert [*room.samples.crowded.said] == [SERIES]
    assert not any("no room" in reason for reason in room.samples.refused.values())
    room.readings(2 * SAID_S + 1)
    assert [*room.samples.crowded.said] == []


def test_what_is_left_out_of_a_sender_is_said_although_very_many_nodes_are_refused(room: Pushes) -> None:
    room.samples.refused = {f"n{number}": "for a reason" for number in range(pushed_samples.MOST_REFUSED)}
    room.at(0, nodes("a", 0, 64), [0], sender="a")
    room.at(0, nodes("b", 0, 1), [0], sender="b")
    assert [*room.samples.crowded.said] == [NODES]


def test_series_that_found_no_room_are_tried_again_within_bounds(room: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender with very many of them kept the thread that takes in the samples of all senders busy."""
    monkeypatch.setattr(crowded_senders, "MOST_CROWDED", 30)
    room.samples.most_threads = 30
    room.at(0, nodes("a", 0, 50), [0], sender="a")
    room.samples.most_threads = 31
    room.at(1, nodes("a", 0, 50), [1], sender="a")
    assert room.samples.threads == 31
    with monkeypatch.context() as patch:
        patch.setattr(pushed_samples, "parse_labels", lambda _: pytest.fail("parsed"))
        room.at(2, nodes("a", 0, 50), [2], sender="a")
    room.samples.most_threads = 64
    room.at(CROWDED_S, nodes("a", 0, 50), [CROWDED_S], sender="a")
    assert room.samples.threads == 50


def test_the_series_of_a_node_that_was_left_out_are_not_parsed_again_and_again(
    room: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowded_senders, "MOST_CROWDED", 1)
    room.at(0, nodes("a", 0, 65), [0], sender="a")
    room.at(0, nodes("b", 0, 32), [0], sender="b")
    assert (threads_of(room, "a"), threads_of(room, "b")) == (32, 32)
    monkeypatch.setattr(pushed_samples, "parse_labels", lambda _: pytest.fail("parsed"))
    room.at(1, nodes("a", 0, 65), [1], sender="a")


def test_the_labels_of_new_series_of_a_sender_above_its_share_are_not_parsed(
    room: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.samples._registry.most_series = 100
    room.at(0, nodes("b", 0, 1), [0], sender="b")
    room.at(0, [info("a", f"a:{number}") for number in range(80)], [0], sender="a")
    assert room.samples.series == 75
    monkeypatch.setattr(pushed_samples, "parse_labels", lambda _: pytest.fail("parsed"))
    room.at(1, [info("a", f"a:{number}") for number in range(100, 200)], [1], sender="a")
    assert (room.samples.series, room.samples.counts["postponed"]) == (75, 100)


def test_a_node_that_found_no_room_is_taken_in_when_there_is_some(
    room: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushed_samples, "MOST_NODES", 3)
    room.at(0, nodes("a", 0, 5), [0], sender="a")
    assert room.samples.nodes == 3
    monkeypatch.setattr(pushed_samples, "MOST_NODES", 10)
    room.at(1, nodes("a", 0, 5), [1], sender="a")
    assert room.samples.nodes == 5
