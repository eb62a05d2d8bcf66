"""The second attack on the doors: odd numbers, hosts, framing, names and times; each failed before it was mended."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from clustertwin.service.web import local_users
from clustertwin.service.web.api import stream


@pytest.fixture
def client(app, state):
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("value", ["1e999", "NaN", "-Infinity", '"\\ud800"', '{"until_s": NaN}'])
def test_numbers_and_texts_that_are_not_json_are_refused_in_json(client, value):
    answer = client.post("/api/v1/silences", content=f'{{"until_s": {value}, "node": "a"}}', headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "until_s"]


@pytest.mark.parametrize("host", ["127.0.0.1:1@evil.example", "[::1", "127.0.0.1:", "127.0.0.1 x", "127.0.0.1:80/x"])
def test_only_a_host_and_a_port_are_a_host(client, host):
    expected = 200 if host == "127.0.0.1:" else 421
    assert client.get("/api/v1/snapshot", headers={"Host": host}).status_code == expected


def test_a_request_whose_length_is_stated_twice_is_refused_and_its_connection_ends(client):
    headers = {"Content-Length": "4", "Transfer-Encoding": "chunked"}
    answer = client.post("/login", content=b"", headers=headers)
    assert (answer.status_code, answer.headers["connection"]) == (400, "close")


def test_a_time_beyond_the_calendar_is_refused_and_a_stored_one_does_not_break_the_page(client, state):
    window = {"nodes": ["n1"], "start_s": 0, "end_s": 9e14}
    assert client.post("/api/v1/maintenance", json=window).status_code == 422
    with state.store.database.transaction() as connection:  # as earlier releases did
        connection.execute("INSERT INTO maintenance VALUES (1, '[\"n1\"]', 0, 9e14, '', '')")
    page = client.get("/quiet", headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert "n1" in page.text


def test_a_snapshot_is_written_once_for_all_streams(state, monkeypatch):
    made = []
    monkeypatch.setattr(stream, "_brief", lambda snapshot, state: made.append(snapshot.number) or {})
    messages = stream.SnapshotMessages(state)
    assert len({messages.newest()[1] for _ in range(500)}) == 1
    assert made == [0]


def test_more_streams_than_the_limit_end_the_oldest(state, monkeypatch):
    monkeypatch.setattr(stream, "MOST_STREAMS", 3)
    monkeypatch.setattr(stream, "POLL_S", 0.001)
    (route,) = stream.router(state).routes
    reader = SimpleNamespace(state=SimpleNamespace(is_allowed=lambda: True))

    async def connected() -> bool:
        return False

    reader.is_disconnected = connected

    async def play() -> list[int]:
        bodies = [(await route.endpoint(reader)).body_iterator for _ in range(5)]
        tasks = [asyncio.ensure_future(_drain(body)) for body in bodies]
        await asyncio.sleep(0.2)
        ended = [number for number, task in enumerate(tasks) if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return ended

    assert asyncio.run(play()) == [0, 1]


async def _drain(body):
    async for _ in body:
        pass


def test_the_user_of_a_stream_is_looked_up_once(app, state, monkeypatch):
    from starlette.datastructures import Headers

    from clustertwin.service.web.access import Guard
    from clustertwin.service.web.binding import Binding

    asked = []
    monkeypatch.setattr(local_users, "peer_uid", lambda *ends: asked.append(ends) or 0)
    guard = Guard(app, state, Binding(), ())
    scope = {"type": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}
    assert all(guard._is_allowed(Headers({}), scope, "read") for _ in range(20))
    assert len(asked) == 1


@pytest.mark.parametrize("version", ["a" * 5000, "%00", "%e2%80%ae", "ä" * 200])
def test_a_version_that_no_file_can_be_named_for_is_refused(client, version):
    answer = client.post(f"/api/v1/models/{version}/promote", json={})
    assert answer.status_code == 409
    assert "no version" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/jobs", "/", "/clusters"])
def test_a_search_for_thousands_of_words_is_refused(client, path):
    """16,000 words and 5,000 jobs kept all other threads waiting for a minute; any local user could send them."""
    assert client.get(path, params={"q": "a " * 140}).status_code == 200
    assert client.get(path, params={"q": "a " * 8000}).status_code == 422
