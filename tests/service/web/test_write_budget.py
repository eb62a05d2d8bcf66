"""What one person may write in an hour: verdicts given many times over change nothing, and a flood is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from tests.service.web.test_api import EVENT, WHY

from clustertwin.service.application import create_app
from clustertwin.service.web.write_budget import WriteBudget


@pytest.fixture
def client(app, state):
    state.store.write([(replace(EVENT, id=f"e{i}"), WHY) for i in range(3)])
    return TestClient(app, base_url="http://127.0.0.1:8790")


def test_an_event_that_is_named_many_times_is_undone_once(client, state):
    for verdict in ("confirmed", "dismissed"):
        client.post("/api/v1/events/e1/verdict", json={"verdict": verdict, "comment": "x" * 4000})
    page = client.post("/events", data={"action": "undo", "event": ["e1"] * 900})
    assert (page.status_code, "1 event undone" in page.text) == (200, True)
    assert [entry.action for entry in state.store.audit()] == ["undo", "vet", "vet"]
    assert state.store.event("e1").verdict == "confirmed"


def test_many_verdicts_are_undone_together_or_not_at_all(client, state):
    client.post("/api/v1/events/e1/verdict", json={"verdict": "confirmed"})
    assert client.post("/events", data={"action": "undo", "event": ["e1", "e2"]}).status_code == 422
    assert state.store.event("e1").verdict == "confirmed"


def test_after_the_budget_of_an_hour_a_change_is_refused():
    now_s = [0.0]
    budget = WriteBudget(10_000, lambda: now_s[0])
    for _ in range(4):
        budget.spend("eve", 2)
    with pytest.raises(HTTPException) as refused:
        budget.spend("eve", 1, "x" * 1000)
    assert (refused.value.status_code, refused.value.headers) == (429, {"Retry-After": "3601"})
    budget.spend("ada", 9)
    now_s[0] = 3600.0
    budget.spend("eve", 9)


@pytest.mark.medium
def test_a_flood_of_verdicts_and_of_windows_is_refused(state):
    client = TestClient(create_app(state), base_url="http://127.0.0.1:8790")
    flood = {"verdict": "confirmed", "comment": "x" * 4000, "ids": [f"e{i}" for i in range(10_000)]}
    assert [client.post("/api/v1/verdicts", json=flood).status_code for _ in range(2)] == [404, 429]
    window = {"nodes": ["\u00e4" * 200] * 1000, "start_s": 0, "end_s": 1}
    codes = [client.post("/api/v1/maintenance", json=window).status_code for _ in range(80)]
    assert (codes[0], codes[-1]) == (422, 429)
