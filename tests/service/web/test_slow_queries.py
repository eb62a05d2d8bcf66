"""While the database is slow, what does not need it answers, and what needs it is refused with a sentence."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from fastapi.testclient import TestClient

from clustertwin.service.application import PAGE_THREADS


def test_a_request_that_waits_for_access_control_stops_no_other(app, state, monkeypatch):
    guard, answers = state.store.database.readers["guard"], []
    monkeypatch.setattr(guard, "most_s", 20.0)  # if it blocks, the test fails and does not hang

    async def ask(client: httpx.AsyncClient, path: str) -> None:
        answers.append((path, (await client.get(path)).status_code))

    async def play() -> None:
        transport = httpx.ASGITransport(app=app, client=("testclient", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8790") as client:
            with guard.turn:
                waiting = asyncio.create_task(ask(client, "/api/v1/events"))
                await asyncio.sleep(0.05)
                await ask(client, "/healthz")
            await waiting

    asyncio.run(play())
    assert answers == [("/healthz", 200), ("/api/v1/events", 200)]


def test_a_page_that_cannot_be_read_in_time_is_a_503_with_a_sentence(app, state):
    client = TestClient(app, base_url="http://127.0.0.1:8790")
    reader = state.store.database.readers["request"]
    reader.most_s = 0.05
    with reader.turn:
        for path in ("/events", "/api/v1/events", "/nonsense"):
            answer = client.get(path, headers={"Accept": "text/html" if path != "/api/v1/events" else "*/*"})
            assert (answer.status_code, "other requests use the database" in answer.text) == (503, True), path
        assert client.get("/healthz").status_code == 200
    assert client.get("/events").status_code == 200


def test_few_requests_are_answered_at_the_same_time(app, state, monkeypatch):
    """Each of them makes the loop wait for Python's lock. Forty readers of `/metrics` delayed all data by seconds."""
    lock, running, most = threading.Lock(), 0, 0

    def render(*_, **__) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1
        return ""

    monkeypatch.setattr("clustertwin.service.outgoing.service_metrics.render", render)
    with TestClient(app, base_url="http://127.0.0.1") as client, ThreadPoolExecutor(16) as readers:
        answers = [readers.submit(client.get, "/metrics") for _ in range(16)]
        assert {answer.result().status_code for answer in answers} == {200}
    assert most <= PAGE_THREADS
