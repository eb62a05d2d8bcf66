"""An event has one title: on every page, in the terminal, in alerts, in messages, in the digest and in the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.service.sample_state import EVENT, NOW_S
from tests.service.sample_state import state as sample_state
from typer.testing import CliRunner

from clustertwin.cli import events as events_command
from clustertwin.service.application import create_app
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.outgoing import notifications, service_metrics, weekly_digest
from clustertwin.service.terminal.remote_board import board_of

TITLE = "Job 17 is unusual: iowait 70 % on 2 threads for 3 min, more than the 2 % expected"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ServiceState]:
    published = sample_state(tmp_path)
    (case,) = published.store.events()
    assert case.event.title == TITLE
    published.publish(replace(published.snapshot, events=(case.event,)), None)
    yield published
    published.store.close()


@pytest.mark.medium
@pytest.mark.parametrize("page", ["/", "/events", "/events/e1", "/nodes/n1", "/jobs/17"])
def test_pages(state, page):
    assert TITLE in TestClient(create_app(state), base_url="http://127.0.0.1").get(page).text


def test_api_and_twin_top(state):
    client = TestClient(create_app(state), base_url="http://127.0.0.1")
    cases = client.get("/api/v1/events?open=true").json()["events"]
    assert [case["title"] for case in cases] == [TITLE]
    board = board_of(client.get("/api/v1/snapshot").json(), None, cases)
    assert [line.title for line in board.events] == [TITLE]


def test_twin_events_list_and_show(state, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    for command in (["list"], ["show", "e1"]):
        answer = CliRunner().invoke(events_command.app, [*command, "--home", str(tmp_path)])
        assert TITLE in answer.output, answer.output
    answer = CliRunner().invoke(events_command.app, ["list", "--json", "--home", str(tmp_path)])
    assert json.loads(answer.output)[0]["title"] == TITLE


def test_alerts_messages_and_digest(state):
    assert f'title="{TITLE}"' in service_metrics.render(state)
    assert notifications.compose(state.store.event(EVENT.id), "opened", 0.0).title == f"Anomaly: {TITLE}"
    report = weekly_digest.digest(state.store, NOW_S - 1000, NOW_S)
    assert report.titles == (TITLE,)
    assert TITLE in weekly_digest.text(report)[1]


def test_a_dismissed_event_is_not_among_the_open_ones_of_twin_top(state):
    client = TestClient(create_app(state), base_url="http://127.0.0.1")
    state.store.vet([EVENT.id], "dismissed", who="ada", now_s=NOW_S)
    cases = client.get("/api/v1/events?open=true").json()["events"]
    assert board_of(client.get("/api/v1/snapshot").json(), None, cases).events == ()
