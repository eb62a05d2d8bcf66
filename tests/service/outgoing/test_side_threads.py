"""Threads beside the loop: damaged files and foreign errors are skipped or named, and the thread goes on."""

from __future__ import annotations

import json
import os
import re
import threading
from contextlib import suppress

import pytest
from tests.service import sample_state

from clustertwin.service import serving
from clustertwin.service.config import ServiceConfig
from clustertwin.service.live.beside import night_runner
from clustertwin.service.live.beside.side_work import SideThreads, fence_of, repeat
from clustertwin.service.live.problems import problems
from clustertwin.service.live.queue import start_watch
from clustertwin.service.live.queue.queue_settings import QueueSettings
from clustertwin.service.outgoing import notifications, service_metrics
from clustertwin.service.outgoing.notifications import Message, Notifier, NotifySettings, Outbox
from clustertwin.service.outgoing.owner_messages import OWNERS, OwnerPost

URL = "json://nowhere"
GOOD = Message("opened", "e1", 1000.0, "title", "body")
DAMAGED = {
    "not JSON": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "a text as time": b'{"kind": "opened", "event": "x", "at_s": "soon", "title": "t", "body": "b"}',
    "a list as time": b'{"kind": "opened", "event": "x", "at_s": [1], "title": "t", "body": "b"}',
    "a list": b"[1, 2]",
    "nothing": b"null",
    "no kind": b'{"event": "x", "at_s": 1}',
}


@pytest.mark.parametrize("damage", [*DAMAGED, "fifo"])
def test_a_damaged_message_does_not_stop_the_others(tmp_path, damage):
    """A time that is a text ended the thread of all notifications, and a FIFO stopped it."""
    outbox = Outbox(tmp_path, [URL])
    outbox.put([GOOD])
    path = outbox.boxes[URL] / "x-opened.json"
    if damage == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(DAMAGED[damage])
    sent = []
    notifier = Notifier(tmp_path, None, NotifySettings((URL,)), [lambda *words: sent.append(words) or True])
    done = threading.Thread(target=notifier.deliver, args=(1001.0,), daemon=True)
    done.start()
    done.join(60)
    assert sent == [("title", "body")]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_message_to_an_owner_does_not_stop_the_others(tmp_path, damage):
    sent = []
    post = OwnerPost(tmp_path, "json://{user}", send_to=lambda url: lambda *words: sent.append((url, *words)) or True)
    (tmp_path / OWNERS).mkdir()
    (tmp_path / OWNERS / "a.json").write_bytes(DAMAGED[damage])
    good = {"user": "ada", "title": "t", "body": "b", "at_s": 1000.0}
    (tmp_path / OWNERS / "b.json").write_text(json.dumps(good))
    post.deliver(1001.0)
    assert sent == [("json://ada", "t", "b")]


def test_messages_to_owners_are_tried_again_after_the_clock_was_set_back(tmp_path):
    sent, accepts = [], [False, True]
    post = OwnerPost(tmp_path, "json://{user}", send_to=lambda url: lambda *words: sent.append(words) or accepts.pop(0))
    (tmp_path / OWNERS).mkdir()
    message = {"user": "ada", "title": "t", "body": "b", "at_s": 1e6}
    (tmp_path / OWNERS / "a.json").write_text(json.dumps(message))
    for now_s in (1e6, 1e6 + 10, 1e6 - 20_000):
        post.deliver(now_s)
    assert (len(sent), accepts) == (2, [])


def test_a_message_to_an_owner_is_tried_before_a_jump_of_the_clock_makes_it_too_old(tmp_path):
    sent = []
    post = OwnerPost(tmp_path, "json://{user}", send_to=lambda url: lambda *words: sent.append(words) or True)
    (tmp_path / OWNERS).mkdir()
    post.deliver(1e6)
    message = {"user": "ada", "title": "t", "body": "b", "at_s": 1e6}
    (tmp_path / OWNERS / "a.json").write_text(json.dumps(message))
    post.deliver(1e6 + 30 * 86_400)
    assert sent == [("t", "b")]


def test_a_target_that_raises_an_error_does_not_stop_the_others(tmp_path):
    urls = ("json://broken", "json://sound")
    Outbox(tmp_path, urls).put([GOOD])
    sent = []

    def broken(title, body):
        raise UnicodeError("secret")

    notifier = Notifier(tmp_path, None, NotifySettings(urls), [broken, lambda *words: sent.append(words) or True])
    notifier.deliver(1001.0)
    assert sent == [("title", "body")]
    assert notifier._paused[urls[0]] == (1001.0, 60.0)  # it is tried again later


def test_a_turn_that_fails_is_named_until_one_succeeds(tmp_path):
    state = sample_state.state(tmp_path)
    fence = fence_of(state.side_problems, "new notifications")
    with fence():
        raise MemoryError
    assert "new notifications: MemoryError; the next attempt follows" in problems(state)
    assert re.search(r"^twin_loop_problems [1-9]", service_metrics.render(state), re.MULTILINE)
    with fence():
        pass
    assert not any("notifications" in problem for problem in problems(state))
    state.store.close()


def test_notifications_go_on_after_an_error(tmp_path, monkeypatch):
    state, stop, turns = sample_state.state(tmp_path), threading.Event(), []

    def spool(self, *args):
        turns.append(1)
        if len(turns) == 3:
            stop.set()
        raise RecursionError

    monkeypatch.setattr(Notifier, "spool", spool)
    monkeypatch.setattr(notifications, "sender", lambda url: lambda *words: True)
    with suppress(RecursionError):
        notifications.watch(state, NotifySettings((URL,)), stop, check_s=0.001)
    assert len(turns) == 3
    assert state.side_problems == {"new notifications": "new notifications: RecursionError; the next attempt follows"}
    state.store.close()


def test_forecasts_and_nights_go_on_where_no_process_can_be_started(tmp_path):
    """Without memory for another process, both threads ended, and no page said so."""
    state, stop, turns = sample_state.state(tmp_path), threading.Event(), []

    def refuse(*args):
        turns.append(1)
        if len(turns) % 2 == 0:
            stop.set()
        raise BlockingIOError(11, "Resource temporarily unavailable")

    settings = QueueSettings(site="/etc/slurm", every_s=0.001)
    starts = start_watch.StartWatch(settings, lambda board: None, refuse)
    repeat(starts.turn, stop, settings.every_s, fence_of(state.side_problems, "forecast of starts"), at_once=True)
    stop.clear()

    class Nightly:
        check = staticmethod(refuse)

    night_runner.watch(Nightly(), stop, check_s=0.001, fence=fence_of(state.side_problems, "nightly learning"))
    assert len(turns) == 4
    assert set(state.side_problems) == {"forecast of starts", "nightly learning"}
    state.store.close()


def test_a_history_that_cannot_be_limited_is_named(tmp_path, monkeypatch):
    """It was a line in the log of the service only."""
    state, limited = sample_state.state(tmp_path), threading.Event()

    def fail(*args):
        limited.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(serving, "apply_limits", fail)
    beside = SideThreads(threading.Event())
    serving._limit_history(ServiceConfig(), state, beside)
    assert limited.wait(60)
    beside.stop.set()
    beside.join()
    assert problems(state)[0].startswith("limits of the history: ")
    state.store.close()


def test_work_beside_the_loop_has_ended_when_it_is_joined():
    stop, ended = threading.Event(), []

    def work() -> None:
        stop.wait()
        ended.append(1)

    beside = SideThreads(stop)
    beside.start("a", work, ends_within_s=60.0)
    beside.start("b", work, ends_within_s=60.0)
    stop.set()
    beside.join()
    assert ended == [1, 1]


def test_a_stopped_service_takes_no_turn():
    stop, turns = threading.Event(), []
    stop.set()
    repeat(lambda: turns.append(1), stop, 0.0, at_once=True)
    assert turns == []
