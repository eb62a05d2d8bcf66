"""`twin top --url` with the real API, without a network."""

from __future__ import annotations

import math
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from tests.service import sample_state

from clustertwin.core.errors import SourceError
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.terminal.remote_board import RemoteBoards


@pytest.fixture
def state(tmp_path: Path, stage):
    vars(stage).update(vars(sample_state.state(tmp_path)))
    yield stage
    stage.store.close()


@pytest.fixture
def feed(app, state) -> RemoteBoards:
    return RemoteBoards("http://127.0.0.1", client=TestClient(app, base_url="http://127.0.0.1"))


def test_a_board_has_the_nodes_jobs_and_events_of_the_service(feed):
    board = next(feed.boards())
    assert [(node.node, node.anomalous) for node in board.nodes] == [("n1", 2), ("n2", 0)]
    assert math.isnan(board.nodes[1].score)
    assert board.heat.node == "n1"
    assert board.heat.ratios["busy"].shape == (2, 300)
    assert (board.jobs[0].job, board.jobs[0].running_s) == ("17", 1000)
    assert "iowait was 70 %" in board.events[0].why
    assert "n2 does not answer" in board.state


def test_the_chosen_node_is_shown(feed):
    feed.choose("n2")
    assert next(feed.boards()).heat.node == "n2"


def test_a_verdict_is_sent_and_undone(feed, state):
    feed.vet("e1", "confirmed")
    assert state.store.event("e1").verdict == "confirmed"
    feed.undo("e1")
    assert state.store.event("e1").verdict == ""


def test_an_error_of_the_service_is_shown(feed):
    with pytest.raises(SourceError, match="no event 'e9'"):
        feed.vet("e9", "confirmed")


def test_the_role_read_cannot_give_a_verdict(app, state):
    token = Tokens(state.store.database).add("ada", "read", 1.0)
    client = TestClient(app, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {token}"})
    feed = RemoteBoards("http://127.0.0.1", client=client)
    assert next(feed.boards()).nodes
    with pytest.raises(SourceError, match="needs the role vet"):
        feed.vet("e1", "confirmed")


def test_a_server_that_is_not_a_service_is_an_error():
    client = httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, text="hello")), base_url="http://x"
    )
    with pytest.raises(SourceError, match="not a clustertwin service"):
        next(RemoteBoards("http://x", client=client).boards())


def test_a_service_that_goes_away_is_waited_for():
    answers = iter([True, False])

    def answer(request: httpx.Request) -> httpx.Response:
        if "snapshot" in request.url.path and not next(answers):
            raise httpx.ConnectError("refused")
        empty = {"now_s": 1, "phase": "watching", "ready_in_s": None, "nodes": [], "jobs": [], "problems": []}
        return httpx.Response(200, json=empty | {"events": []})

    client = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://x")
    ticks = iter(range(0, 1000, 10))
    boards = RemoteBoards("http://x", client=client, clock=lambda: float(next(ticks))).boards()
    assert [next(boards).state, next(boards).state] == [
        "watching",
        "http://x: no service answers here (refused); is it running?",
    ]


def test_outside_a_terminal_the_state_of_the_service_is_printed_as_text(feed, monkeypatch, twin_here):
    monkeypatch.setattr("clustertwin.service.terminal.remote_board.RemoteBoards", lambda url, token: feed)
    monkeypatch.setenv("COLUMNS", "1000")  # a reason is not broken into lines
    result = twin_here("top", "--url", "http://service")
    assert result.returncode == 0
    assert result.stdout.startswith("http://service: ")
    assert "n2 does not answer" in result.stdout
    assert "iowait was 70 %" in result.stdout
