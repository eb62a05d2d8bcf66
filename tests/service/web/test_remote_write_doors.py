"""The door for pushed samples: who may push, what is refused with which status, and that a push token reads nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from tests.pushed import label, literal_block, message, sample, series, varint

from clustertwin.service.live.feeds import remote_write_feed
from clustertwin.service.live.feeds.remote_write_feed import RemoteWriteFeed
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.api import PREFIX

pytest.importorskip("cramjam", reason="pip install 'clustertwin[remote-write]'")

WRITE = f"{PREFIX}/write"
HEAD = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
CPU = {"__name__": "twin_cpu_seconds_total", "cpu": "0", "instance": "n1:9752", "mode": "user"}


def now_ms() -> int:
    """Now, not when the tests were collected: samples that are five minutes old are dropped."""
    return round(time.time() * 1000)


def push_body() -> bytes:
    return literal_block(series(CPU, [(now_ms(), 1.0)]))


@pytest.fixture
def feed(state) -> Iterator[RemoteWriteFeed]:
    feed = state.receiver = RemoteWriteFeed()
    yield feed
    feed.close()


@pytest.fixture
def tokens(state) -> dict[str, dict[str, str]]:
    made = Tokens(state.store.database)
    return {role: {"Authorization": f"Bearer {made.add(role, role, 0.0)}"} for role in ("push", "read", "vet", "admin")}


@pytest.fixture
def client(app, state, feed) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def test_a_push_is_taken_in(client, tokens, feed):
    answer = client.post(WRITE, content=push_body(), headers={**HEAD, **tokens["push"]})
    assert (answer.status_code, answer.content) == (204, b"")
    lines = client.get("/metrics", headers=tokens["read"]).text.splitlines()
    assert 'twin_pushed_samples_total{outcome="used"} 1' in lines
    assert "twin_pushed_series 1" in lines


@pytest.mark.parametrize(("role", "status"), [("", 401), ("read", 403), ("vet", 403), ("push", 204), ("admin", 204)])
def test_only_the_role_push_and_admins_may_push(client, tokens, role, status):
    assert client.post(WRITE, content=push_body(), headers={**HEAD, **tokens.get(role, {})}).status_code == status


def test_a_push_token_reads_nothing_and_changes_nothing_else(client, tokens, app):
    for route in app.routes:
        path = getattr(route, "path", "").replace("{node}", "n1").replace("{job}", "1").replace("{event_id}", "e")
        for method in getattr(route, "methods", None) or ():
            if path not in ("/healthz", WRITE) and not path.startswith(("/static", "/login")):
                assert client.request(method, path, headers=tokens["push"]).status_code == 403, (method, path)


def test_a_push_token_cannot_read_through_a_session(client, tokens):
    token = tokens["push"]["Authorization"].removeprefix("Bearer ")
    client.post("/login", data={"token": token}, headers={"Origin": "http://127.0.0.1"})
    assert client.get("/api/v1/snapshot").status_code in (401, 403)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}, 415),
        ({"Content-Type": "application/x-protobuf;proto=prometheus.WriteRequest"}, 204),
        ({"Content-Type": "application/json"}, 415),
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Encoding": "zstd"}, 415),
        ({"Content-Encoding": "snappy, snappy"}, 415),
        ({"X-Prometheus-Remote-Write-Version": "2.0.0"}, 415),
    ],
)
def test_other_protocols_get_415_and_a_sentence(client, tokens, change, status):
    answer = client.post(WRITE, content=push_body(), headers={**HEAD, **tokens["push"], **change})
    assert answer.status_code == status
    assert status == 204 or answer.text.startswith("only remote write 1.0 is understood")


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "not a snappy block"),
        (literal_block(b"\x0a\xff"), 400, "not a WriteRequest"),
        (varint(32 << 20) + b"\xfe\x01\x00" * 40, 400, "do not expand"),
        (varint(64 << 20) + b"\xfe\x01\x00" * 40, 413, "after decoding; the limit is"),
        (b"x" * ((4 << 20) + 1), 413, "larger than 4194304 bytes"),
        (literal_block(message(1, label("a", "b") + sample(1, 1.0))), 400, "1 series with no __name__; the others are"),
        (literal_block(series({**CPU, "instance": ""}, [(1, 1.0)])), 400, "a series has no instance; the others are"),
    ],
)
def test_what_cannot_be_used_is_refused_with_one_sentence(client, tokens, body, status, reason):
    answer = client.post(WRITE, content=body, headers={**HEAD, **tokens["push"]})
    assert answer.status_code == status
    assert reason in answer.text
    assert answer.text.count("\n") <= 1


def test_a_bad_series_does_not_take_the_good_ones_with_it(client, tokens, feed):
    body = literal_block(message(1, label("a", "b") + sample(1, 1.0)) + series(CPU, [(now_ms(), 1.0)]))
    assert client.post(WRITE, content=body, headers={**HEAD, **tokens["push"]}).status_code == 400
    assert feed._samples.counts["used"] == 1


def test_other_paths_keep_their_limit_of_bytes(client, tokens):
    answer = client.post("/api/v1/maintenance", content=b"x" * ((1 << 20) + 1), headers=tokens["vet"])
    assert (answer.status_code, "larger than 1048576 bytes" in answer.text) == (413, True)


def test_a_body_without_a_length_is_refused(client, tokens):
    answer = client.post(WRITE, content=iter([push_body()]), headers={**HEAD, **tokens["push"]})
    assert answer.status_code == 411


def test_a_full_queue_answers_429_and_is_free_again(client, tokens, feed, monkeypatch):
    monkeypatch.setattr(remote_write_feed, "MOST_BODIES", 1)
    held, go_on = threading.Event(), threading.Event()

    def block() -> None:
        held.set()
        go_on.wait(60)

    feed._pool.submit(block)
    held.wait(60)
    first = threading.Thread(
        target=client.post, args=(WRITE,), kwargs={"content": push_body(), "headers": {**HEAD, **tokens["push"]}}
    )
    first.start()
    while not feed._waiting:
        time.sleep(0.01)
    answer = client.post(WRITE, content=push_body(), headers={**HEAD, **tokens["push"]})
    go_on.set()
    first.join(60)
    assert answer.status_code == 429
    assert "send this one again later" in answer.text
    assert client.post(WRITE, content=push_body(), headers={**HEAD, **tokens["push"]}).status_code == 204
    assert (feed._waiting, feed._waiting_bytes) == (0, 0)


def test_the_bytes_of_waiting_bodies_are_limited(client, tokens, monkeypatch):
    monkeypatch.setattr(remote_write_feed, "MOST_WAITING_BYTES", len(push_body()) - 1)
    assert client.post(WRITE, content=push_body(), headers={**HEAD, **tokens["push"]}).status_code == 429


def test_another_source_takes_in_no_samples(client, tokens, state):
    state.receiver = None
    answer = client.post(WRITE, content=push_body(), headers={**HEAD, **tokens["push"]})
    assert (answer.status_code, "remote-write" in answer.text) == (404, True)
