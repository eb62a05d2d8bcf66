"""Notifications: which events are announced, that no message is lost, and that hostile names do no harm."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
from tests.servers import free_address, webhook
from tests.service.sample_state import EVENT, WHY
from tests.service.sample_state import state as sample_state

from clustertwin.core import files
from clustertwin.core.errors import OutputError, SettingsError, SourceError
from clustertwin.service.outgoing.message_process import without_mentions
from clustertwin.service.outgoing.notifications import (
    Notifier,
    NotifySettings,
    compose,
    deliver_now,
    joined,
    pending,
    sender,
    watch,
)
from clustertwin.service.store.event_store import Case, Store
from clustertwin.service.store.quiet_periods import Silence
from clustertwin.telemetry.detection.events.explanation import Ratio
from clustertwin.telemetry.learning.champions.shadow import Shadow

TITLE = "Job 17 is unusual: iowait 70 % on 2 threads for 3 min, more than the 2 % expected"
IDLE_RATIO = Ratio("other", 0.9, 0.1, None)
ONE = NotifySettings(urls=("json://one",), link="https://twin.example.org/")


class Target:
    """A target that stores what it receives, and fails while `up` is False."""

    def __init__(self) -> None:
        self.up = True
        self.received: list[tuple[str, str]] = []

    def __call__(self, title: str, body: str) -> bool:
        if self.up:
            self.received.append((title, body))
        return self.up


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state.sqlite")
    store.write([(EVENT, WHY)])
    yield store
    store.close()


def test_an_event_and_its_end_are_announced_once(store, tmp_path):
    target = Target()
    notifier = Notifier(tmp_path, store, ONE, [target])
    for now_s in range(0, 300, 5):
        notifier.spool([EVENT], now_s)
        notifier.deliver(now_s)
    ((title, body),) = target.received
    assert title == f"Anomaly: {store.event('e1').event.title}"
    assert title.startswith("Anomaly: Job 17 is unusual: iowait 70 %")
    assert body.startswith(WHY.sentence)
    assert "https://twin.example.org/events/e1" in body
    store.write([(replace(EVENT, end_s=9_990), None)])
    for now_s in range(300, 600, 5):
        notifier.spool([], now_s)
        notifier.deliver(now_s)
    assert [title for title, _ in target.received[1:]] == [f"Resolved: {store.event('e1').event.title}"]
    assert pending(tmp_path) == 0


def test_a_message_says_the_reason_the_owner_and_the_next_step():
    message = compose(Case(EVENT, WHY), "opened", 0.0)
    assert WHY.sentence in message.body
    assert "owner ada" in message.body
    assert f"Next step: {WHY.next_step}" in message.body


def test_people_are_told_when_the_reason_of_an_open_event_changes(store, tmp_path):
    target = Target()
    notifier = Notifier(tmp_path, store, replace(ONE, every_s=0.0), [target])
    for now_s in range(0, 1200, 5):
        if now_s == 100:
            store.write([(replace(EVENT, title="Job 17 is unusual: idle"), replace(WHY, ratios=(IDLE_RATIO,)))])
        notifier.spool([EVENT], now_s)
        notifier.deliver(now_s)
    assert [title.partition(":")[0] for title, _ in target.received] == ["Anomaly", "New reason"]
    assert target.received[1][0] == "New reason: Job 17 is unusual: idle"


def test_an_event_that_is_explained_after_its_message_has_no_new_reason(store, tmp_path):
    target, late = Target(), replace(EVENT, id="late")
    store.write([(late, None)])
    notifier = Notifier(tmp_path, store, replace(ONE, every_s=0.0), [target])
    notifier.spool([late], 0)
    store.write([(late, WHY)])
    for now_s in range(0, 1200, 5):
        notifier.spool([late], now_s)
        notifier.deliver(now_s)
    assert len(target.received) == 1


def test_the_list_of_announced_events_of_an_older_release_is_read(store, tmp_path):
    (tmp_path / "outbox").mkdir()
    (tmp_path / "outbox" / "told.json").write_text('["e1"]')
    target = Target()
    notifier = Notifier(tmp_path, store, ONE, [target])
    notifier.spool([EVENT], 0)
    notifier.deliver(0)
    assert target.received == []


def test_a_target_that_was_down_gets_everything_in_one_message(store, tmp_path):
    up, down = Target(), Target()
    down.up = False
    notifier = Notifier(tmp_path, store, replace(ONE, urls=("json://up", "json://down")), [up, down])
    others = [replace(EVENT, id=f"o{i}", jobs=(str(i),)) for i in range(3)]
    store.write((event, WHY) for event in others)
    for now_s in range(0, 600, 5):
        notifier.spool([EVENT, *others[: now_s // 100]], now_s)
        notifier.deliver(now_s)
    assert len(up.received) == 4
    assert pending(tmp_path) == 4
    down.up = True
    notifier.deliver(10_000)
    ((title, body),) = down.received
    assert title == "4 new events, 0 resolved"
    assert all(f"/events/{event.id}" in body for event in (EVENT, *others))
    assert pending(tmp_path) == 0


def test_a_target_that_fails_is_tried_at_growing_intervals(store, tmp_path):
    tried: list[float] = []
    now_s = 0.0

    def refuse(title: str, body: str) -> bool:
        tried.append(now_s)
        return False

    notifier = Notifier(tmp_path, store, replace(ONE, longest_pause_s=400), [refuse])
    notifier.spool([EVENT], 0)
    while now_s < 2000:
        notifier.deliver(now_s)
        now_s += 10
    pauses = [b - a for a, b in pairwise(tried)]
    assert pauses[:5] == [60, 120, 240, 400, 400]


def test_after_the_clock_was_set_back_messages_are_sent_at_once(store, tmp_path):
    """They waited until the clock had reached its old time."""
    target = Target()
    notifier = Notifier(tmp_path, store, ONE, [target])
    notifier.spool([EVENT], 1e6)
    notifier.deliver(1e6)
    later = replace(EVENT, id="later", jobs=("18",))
    store.write([(later, WHY), (EVENT, replace(WHY, ratios=(IDLE_RATIO,)))])
    notifier.spool([EVENT, later], 1e6 - 20_000)
    notifier.deliver(1e6 - 20_000)
    assert [title for title, _ in target.received[1:]] == ["1 new event, 1 changed, 0 resolved"]


def test_a_message_that_waits_is_tried_before_a_jump_of_the_clock_makes_it_too_old(store, tmp_path):
    """A clock that is weeks ahead for a second deleted every message that waited."""
    target = Target()
    target.up = False
    notifier = Notifier(tmp_path, store, ONE, [target])
    notifier.spool([EVENT], 0)
    notifier.deliver(0)
    target.up = True
    notifier.deliver(3 * ONE.keep_s)
    assert (len(target.received), pending(tmp_path)) == (1, 0)


def test_a_new_process_announces_nothing_twice_and_sends_what_waits(store, tmp_path):
    down, up = Target(), Target()
    down.up = False
    first = Notifier(tmp_path, store, ONE, [down])
    first.spool([EVENT], 0)
    first.deliver(0)
    second = Notifier(tmp_path, store, ONE, [up])
    for now_s in (100, 200):
        second.spool([EVENT], now_s)
        second.deliver(now_s)
    assert len(up.received) == 1


def test_a_full_disk_only_delays_messages(store, tmp_path, monkeypatch):
    target = Target()
    notifier = Notifier(tmp_path, store, ONE, [target])

    def full(*_: object) -> None:
        raise OutputError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "replacing", full)
        with pytest.raises(OutputError):
            notifier.spool([EVENT], 0)
    notifier.spool([EVENT], 5)
    notifier.deliver(5)
    assert len(target.received) == 1


@pytest.mark.parametrize("how", ["silenced", "dismissed"])
def test_silenced_and_dismissed_events_are_not_announced(store, tmp_path, how):
    if how == "silenced":
        store.quiet_periods.add_silence(Silence(1e9, job="17"), 0)
    else:
        store.vet(["e1"], "dismissed", who="ada", now_s=0)
    notifier = Notifier(tmp_path, store, ONE, [Target()])
    notifier.spool([EVENT], 5)
    assert pending(tmp_path) == 0


def test_in_shadow_nobody_is_notified_until_an_event_outlasts_it(store, tmp_path):
    notifier = Notifier(tmp_path, store, ONE, [Target()])
    notifier.spool([EVENT], 5, shadow=Shadow(True, inf))
    assert pending(tmp_path) == 0
    ended = Shadow(False, EVENT.seen_s + 10.0, "learned")
    notifier.spool([EVENT], 6, shadow=ended)
    assert pending(tmp_path) == 0
    later = replace(EVENT, seen_s=EVENT.seen_s + 20)
    store.write([(later, None)])
    notifier.spool([later], 7, shadow=ended)
    assert pending(tmp_path) == 1


def test_a_silence_ends_by_the_clock_of_the_feed(store, tmp_path):
    store.quiet_periods.add_silence(Silence(10_060, job="17"), 10_000)
    notifier = Notifier(tmp_path, store, ONE, [Target()])
    notifier.spool([EVENT], 1_700_000_000, feed_s=10_050)
    assert pending(tmp_path) == 0
    notifier.spool([EVENT], 1_700_000_010, feed_s=10_061)
    assert pending(tmp_path) == 1


def test_a_burst_loses_nothing(store, tmp_path):
    target = Target()
    notifier = Notifier(tmp_path, store, replace(ONE, every_s=0), [target])
    burst = [replace(EVENT, id=f"b{i}", jobs=(str(i),)) for i in range(60)]
    store.write((event, WHY) for event in burst)
    notifier.spool(burst, 0)
    assert pending(tmp_path) == 60
    notifier.deliver(0)
    assert [title for title, _ in target.received] == ["60 new events, 0 resolved"]


def test_an_old_message_is_deleted(store, tmp_path):
    target = Target()
    notifier = Notifier(tmp_path, store, ONE, [target])
    notifier.spool([EVENT], 0)
    notifier.deliver(ONE.keep_s + 1)
    assert (target.received, pending(tmp_path)) == ([], 0)


def test_a_hostile_name_cannot_write_headers_or_lines():
    event = replace(EVENT, jobs=("17\r\nBcc: all@example.org\x1b[2J",), places=(("n1\nn2", (0,)),))
    message = compose(Case(event, None), "opened", 0)
    assert all(line.isprintable() for line in (message.title, *message.body.split("\n")))
    assert len(message.body.split("\n")) == 4


@pytest.mark.parametrize("name", ["@everyone", "x @Here", "<!channel>", "<@U024BE7LH>", "<@&123>", "a@all"])
def test_a_job_name_calls_nobody_in_a_chat(name):
    text = without_mentions(f"job {name} hangs")
    assert name not in text
    assert text.replace("\u2060", "") == f"job {name} hangs"


def test_addresses_and_links_are_not_changed():
    text = "owner ada@example.org, 3 < 4 <b>, https://twin.example.org/events/1"
    assert without_mentions(text) == text


def test_thousands_of_messages_become_one_of_readable_length():
    messages = [compose(Case(replace(EVENT, id=str(i)), WHY), "opened", 0, "https://t") for i in range(3000)]
    title, body = joined(messages, "https://t")
    assert title == "3,000 new events, 0 resolved"
    assert body.endswith("and 2950 more: https://t/events")


@pytest.mark.slow  # apprise takes seconds to import
def test_the_error_for_an_invalid_url_has_no_password():
    with pytest.raises(SettingsError, match=r"^nonsense://host: Apprise does not support") as refused:
        sender("nonsense://ada:s3cret@host/path?x=y")
    assert "s3cret" not in str(refused.value)


@pytest.mark.slow
def test_apprise_posts_to_a_real_webhook(store, tmp_path):
    pytest.importorskip("apprise")
    with webhook() as (address, posted):
        url = f"json://{address}"
        notifier = Notifier(tmp_path, store, replace(ONE, urls=(url,)), [sender(url)])
        notifier.spool([EVENT], 0)
        notifier.deliver(0)
        assert sender(url)("job @everyone", "waits")
    assert [entry["title"] for entry in posted] == [f"Anomaly: {TITLE}", "job @\u2060everyone"]
    assert WHY.sentence in posted[0]["message"]


@pytest.mark.slow
def test_a_webhook_whose_answer_has_no_end_does_not_fill_the_memory_of_the_service():
    """Apprise read 1.7 GB in eight seconds, and went on in a thread of the service after its deadline."""
    pytest.importorskip("apprise")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
                while True:
                    client.sendall(bytes(1 << 20))

        threading.Thread(target=answer, daemon=True).start()
        send = sender(f"json://127.0.0.1:{listener.getsockname()[1]}/x")
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert not send("title", "body")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 200_000


@pytest.mark.slow
def test_the_error_for_a_missing_webhook_names_it():
    pytest.importorskip("apprise")
    with pytest.raises(SourceError, match=r"not delivered to json://127\.0\.0\.1:9$"):
        deliver_now(["json://127.0.0.1:9/x"], "title", "body")


@pytest.mark.slow
def test_apprise_sends_real_mail(store, tmp_path):
    pytest.importorskip("apprise")
    smtp = pytest.importorskip("aiosmtpd.controller")
    handlers = pytest.importorskip("aiosmtpd.handlers")
    kept: list[bytes] = []

    class Kept(handlers.Message):
        def handle_message(self, message: object) -> None:
            kept.append(bytes(message))  # type: ignore[call-overload]

    host, port = free_address().split(":")
    server = smtp.Controller(Kept(), hostname=host, port=int(port))
    server.start()
    try:
        url = f"mailto://{host}:{port}?to=ops@example.org&from=twin@example.org&mode=insecure"
        deliver_now([url], "3 events began", "n1 & <b>n2</b>")
    finally:
        server.stop()
    (mail,) = kept
    assert b"Subject: 3 events began" in mail
    assert b"ops@example.org" in mail


@pytest.mark.slow
def test_the_thread_beside_the_loop_spools_and_sends(tmp_path):
    pytest.importorskip("apprise")
    state = sample_state(tmp_path)
    stop = threading.Event()
    with webhook() as (address, posted):
        url = f"json://{address}"
        settings = NotifySettings(urls=(url,))
        thread = threading.Thread(target=watch, args=(state, settings, stop), kwargs={"check_s": 0.05})
        thread.start()
        give_up_s = time.monotonic() + 90
        while not posted and time.monotonic() < give_up_s:
            time.sleep(0.02)
        stop.set()
        thread.join()
    state.store.close()
    assert [entry["title"] for entry in posted] == [f"Anomaly: {TITLE}"]
