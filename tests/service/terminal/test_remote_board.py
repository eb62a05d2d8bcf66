"""`twin top --url` with the real API, without a network."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from tests.service import sample_state

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.terminal import remote_board
from clustertwin.service.terminal.remote_board import RemoteBoards


@pytest.fixture
def state(tmp_path: Path, stage):
    vars(stage).update(vars(sample_state.state(tmp_path)))
    yield stage
    stage.store.close()


@pytest.fixture
def feed(app, state) -> RemoteBoards:
    return RemoteBoards("http://127.0.0.1", client=TestClient(app, base_url="http://127.0.0.1"))


def answered(body: bytes, status: int = 200) -> httpx.Response:
    """A response that has not been read yet, as over a network."""
    return httpx.Response(status, stream=httpx.ByteStream(body))


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


@pytest.mark.parametrize("name", ["a/b", "/a", "a/", "a?b", "a#b", "a/traces"])
def test_a_node_with_an_odd_name_is_shown_with_its_threads(feed, state, name):
    now = sample_state.snapshot()
    moment = replace(now.moment, nodes=(name, "n2"))
    state.publish(replace(now, moment=moment, scored=moment, nodes=(replace(now.nodes[0], node=name),)), None)
    board = next(feed.boards())
    assert board.heat.node == board.nodes[0].node == name


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_a_node_whose_name_no_address_can_have_leaves_the_board_readable(feed, state, name):
    now = sample_state.snapshot()
    state.publish(replace(now, nodes=(replace(now.nodes[0], node=name), now.nodes[1])), None)
    board = next(feed.boards())
    assert [node.node for node in board.nodes] == [name, "n2"]
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


def test_a_service_that_needs_a_token_gets_the_name_of_the_option(app, state):
    Tokens(state.store.database).add("ada", "read", 1.0)
    feed = RemoteBoards("http://127.0.0.1", client=TestClient(app, base_url="http://127.0.0.1"))
    with pytest.raises(SourceError, match="this request needs a token; set --token or CLUSTERTWIN_TOKEN"):
        next(feed.boards())


def test_a_server_that_is_not_a_service_is_an_error():
    client = httpx.Client(transport=httpx.MockTransport(lambda _: answered(b"hello")), base_url="http://x")
    with pytest.raises(SourceError, match="not a clustertwin service"):
        next(RemoteBoards("http://x", client=client).boards())


def test_a_service_that_goes_away_is_waited_for():
    answers = iter([True, False])

    def answer(request: httpx.Request) -> httpx.Response:
        if "snapshot" in request.url.path and not next(answers):
            raise httpx.ConnectError("refused")
        empty = {"now_s": 1, "phase": "watching", "ready_in_s": None, "nodes": [], "jobs": [], "problems": []}
        return answered(json.dumps(empty | {"events": []}).encode())

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


EMPTY = {"now_s": 1, "phase": "watching", "ready_in_s": None, "nodes": [], "jobs": [], "problems": [], "events": []}
NODE = {"node": "n1", "threads": 1, "phase": "watching", "score": None, "alarming": 0}
TRACES = {
    "node": "n1",
    "cpus": [0],
    "channels": ["user", "system", "iowait", "other"],
    "end_s": 9,
    "values": [[[1] * 4]],
}


def answering(body: bytes, status: int = 200) -> RemoteBoards:
    transport = httpx.MockTransport(lambda _: answered(body, status))
    return RemoteBoards("http://x", client=httpx.Client(transport=transport, base_url="http://x"))


@pytest.mark.parametrize(
    "document",
    [
        {},
        [1],
        EMPTY | {"nodes": [5]},
        EMPTY | {"nodes": [NODE | {"node": 5}]},
        EMPTY | {"nodes": [NODE | {"score": "high"}]},
        EMPTY | {"jobs": 3},
        EMPTY | {"problems": None},
        EMPTY | {"events": [{"id": "e"}]},
        EMPTY | {"nodes": [NODE | {"threads": 10**400}], **TRACES},
        EMPTY | {"nodes": [NODE], **TRACES, "cpus": [0, 1]},
        EMPTY | {"nodes": [NODE], **TRACES, "values": [[1], 2]},
        EMPTY | {"nodes": [NODE], **TRACES, "channels": ["user"]},
    ],
)
def test_an_answer_of_another_shape_is_one_sentence(document) -> None:
    with pytest.raises(SourceError, match="not that of a clustertwin service"):
        next(answering(json.dumps(document).encode()).boards())


@pytest.mark.parametrize(("body", "status"), [(b"[" * 100_000, 200), (b"[1]", 500), (b"\xff", 200), (b"9" * 5000, 200)])
def test_an_answer_that_is_no_document_is_one_sentence(body: bytes, status: int) -> None:
    with pytest.raises(SourceError, match=r"^http://x: "):
        next(answering(body, status).boards())


def test_an_answer_without_an_end_is_not_read_to_its_end(monkeypatch) -> None:
    monkeypatch.setattr(remote_board, "MOST_BYTES", 2 << 20)
    sent = []

    def endless():
        while True:
            sent.append(1)
            yield b"[]," * 100_000

    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=endless()))
    with pytest.raises(SourceError, match="http://x: more than 2 MB"):
        RemoteBoards("http://x", client=httpx.Client(transport=transport, base_url="http://x")).snapshot()
    assert len(sent) < 20


def test_control_characters_of_a_service_do_not_reach_the_terminal() -> None:
    document = EMPTY | {"nodes": [NODE | {"node": "\x1b[2J"}], "problems": ["\x1b]0;x\x07"], **TRACES}
    board = next(answering(json.dumps(document).encode()).boards())
    assert (board.nodes[0].node, board.state) == (r"\x1b[2J", r"watching. \x1b]0;x\x07")


def test_a_token_is_not_sent_unencrypted_to_another_machine() -> None:
    with pytest.raises(SettingsError, match="unencrypted"):
        RemoteBoards("http://twin.example.org", token="t" * 40)
