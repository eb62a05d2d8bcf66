"""Maintenance windows and silences on the page and on the command line: list, add, end, errors, audit."""

from __future__ import annotations

import json

import pytest
from tests.service.sample_state import NOW_S
from tests.service.web.pages.test_pages import HOSTILE

from clustertwin.service.store import audit_log
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.quiet_periods import MaintenanceWindow, Silence


def test_a_maintenance_window_is_added_shown_with_what_it_covers_and_ended(client, published):
    quiet = published.store.quiet_periods
    text = client.post("/quiet/maintenance", data={"nodes": "n1, m*", "lasts": "1h 30min", "reason": "disks"}).text
    (window,) = quiet.maintenance(NOW_S)
    assert (window.nodes, window.start_s, window.end_s) == (("n1", "m*"), NOW_S, NOW_S + 5400)
    assert all(word in text for word in ("n1 m*", "1 node", "disks", "End now"))
    client.post(f"/quiet/maintenance/{window.id}/end")
    assert quiet.maintenance(NOW_S) == []
    assert [entry.action for entry in published.store.audit()] == ["end maintenance", "maintenance"]


def test_a_window_can_begin_later_and_is_marked_if_it_covers_no_node(client, published):
    data = {"nodes": "zz*", "lasts": "2 h", "begins_s": str(NOW_S + 600)}
    text = client.post("/quiet/maintenance", data=data).text
    assert published.store.quiet_periods.maintenance(NOW_S)[0].start_s == NOW_S + 600
    assert "no node" in text
    assert "Cancel" in text


def test_a_silence_is_added_shown_with_what_it_covers_and_ended(client, published):
    text = client.post("/quiet/silence", data={"job": "1*", "lasts": "2 h", "reason": "known"}).text
    (silence,) = published.store.quiet_periods.silences(NOW_S)
    assert (silence.job, silence.until_s) == ("1*", NOW_S + 7200)
    assert "1 open event" in text
    assert 'data-state="silenced"' in client.get("/events").text
    assert 'data-state="silenced"' in client.get("/events/e1").text
    client.post(f"/quiet/silence/{silence.id}/end")
    assert 'data-state="silenced"' not in client.get("/events").text


@pytest.mark.parametrize(
    ("path", "data", "code"),
    [
        ("/quiet/maintenance", {"nodes": " , ", "lasts": "2 h"}, 422),
        ("/quiet/maintenance", {"nodes": "n1", "lasts": "soon"}, 422),
        ("/quiet/maintenance", {"nodes": "n1", "lasts": "1 h", "begins_s": "10"}, 422),
        ("/quiet/maintenance", {"nodes": "n1", "lasts": "1 h", "begins_s": "nan"}, 422),
        ("/quiet/silence", {"lasts": "2 h"}, 422),
        ("/quiet/silence/7/end", {}, 404),
        ("/quiet/nonsense/7/end", {}, 422),
    ],
)
def test_an_invalid_window_or_silence_is_refused(client, published, path, data, code):
    assert client.post(path, data=data).status_code == code
    assert published.store.audit() == []


def test_hostile_text_is_escaped_on_the_page_and_in_the_audit(client, published):
    quiet = published.store.quiet_periods
    quiet.add_maintenance(MaintenanceWindow((HOSTILE,), NOW_S, NOW_S + 60, HOSTILE, HOSTILE), NOW_S)
    quiet.add_silence(Silence(NOW_S + 60, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE), NOW_S)
    for path in ("/quiet", "/audit"):
        text = client.get(path).text
        assert "<img" not in text
        assert "&lt;img" in text


def test_a_link_fills_in_the_forms(client):
    assert 'value="n7"' in client.get("/quiet?nodes=n7").text
    assert "/quiet?job=17" in client.get("/events/e1").text
    assert "/quiet?nodes=n1" in client.get("/nodes/n1").text


def test_the_audit_log_is_split_into_pages(client, published):
    with published.store.database.transaction() as connection:
        for i in range(120):
            audit_log.append(connection, float(i), "ada", "promote", f"v{i}")
    first = client.get("/audit").text
    assert first.count(">promote<") == 100
    assert "before_id=21" in first
    assert client.get("/audit?before_id=21").text.count(">promote<") == 20
    assert client.get("/audit?subject=v7").text.count(">promote<") == 1


@pytest.fixture
def twin(tmp_path, twin_here):
    """Run a command on a temporary home -> its exit code, and its JSON or its error message."""
    Store(tmp_path / "state.sqlite").close()

    def run_twin(*words: object) -> tuple[int, object]:
        done = twin_here(*words, "--home", tmp_path, "--json")
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    return run_twin


def test_quiet_periods_from_the_shell(twin):
    code, (window,) = twin("maintenance", "add", "n0*", "n7", "--for", "2h", "--from", "2099-01-01T10:00:00")
    assert (code, window["nodes"], window["end_s"] - window["start_s"]) == (0, ["n0*", "n7"], 7200)
    assert twin("maintenance", "list")[1] == [window]
    assert twin("maintenance", "end", window["id"]) == (0, {"ended": window["id"]})
    assert twin("maintenance", "end", window["id"])[0] == 2
    _, (silence,) = twin("silence", "add", "--job", "17", "--reason", "known")
    assert twin("silence", "list")[1] == [silence]
    assert twin("silence", "end", silence["id"])[0] == 0
    assert "at least one of" in twin("silence", "add")[1]
    assert [line["action"] for line in twin("audit")[1]] == ["end silence", "silence", "end maintenance", "maintenance"]
