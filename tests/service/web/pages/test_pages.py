"""The pages of the sample state: their content, escaping, and the forms."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from tests.service.sample_state import EVENT, WHY, snapshot

from clustertwin.core.start_forecast import StartAnswer
from clustertwin.service.live.queue.start_board import StartBoard, StartRecord
from clustertwin.service.live.snapshot import nothing_yet
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.pages import STATIC
from clustertwin.telemetry.learning.champions import learning_state as learning

PAGES = (
    "/",
    "/nodes/n1",
    "/events",
    "/events/e1",
    "/jobs",
    "/jobs/17",
    "/embedding",
    "/models",
    "/quiet",
    "/audit",
    "/try",
)
HOSTILE = "<img src=x onerror=alert(1)>'\"&{{7*7}}"


class Tags(HTMLParser):
    """Every tag of a document with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@pytest.mark.medium
@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_nothing_inline_and_nothing_from_another_site(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    for tag, attributes in Tags(answer.text).tags:
        assert tag != "style"
        assert tag != "script" or "src" in attributes
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("src", "href", "action", "hx-get", "hx-post"):
            assert (attributes.get(name) or "/").startswith(("/", "#")), (tag, attributes)
    assert "{{" not in answer.text


@pytest.mark.medium
@pytest.mark.parametrize("path", PAGES)
def test_every_file_that_a_page_refers_to_exists(client, path):
    referred = {
        a.get("src") or a.get("href") for tag, a in Tags(client.get(path).text).tags if tag in ("script", "link")
    }
    assert len(referred) > 4
    assert {client.get(entry).status_code for entry in referred} == {200}


def test_vendored_files_match_the_manifest_and_have_a_licence():
    vendor = STATIC / "vendor"
    files = json.loads((vendor / "manifest.json").read_bytes())["files"]
    for entry in files:
        assert hashlib.sha256((vendor / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], entry["file"]
        assert "permission" in (vendor / entry["licence_file"]).read_text().lower()
    named = {entry["file"] for entry in files} | {entry["licence_file"] for entry in files} | {"manifest.json"}
    assert {path.name for path in vendor.iterdir()} == named


def test_the_first_page_has_the_number_of_unusual_threads_and_the_problems(client):
    text = client.get("/").text
    assert "n2 does not answer" in text
    assert text.index("/nodes/n1") < text.index("/nodes/n2")  # highest score first


def test_a_node_that_is_not_scored_has_no_number_of_unusual_threads(client, published):
    first, *others = published.snapshot.nodes
    published.snapshot = replace(published.snapshot, nodes=(replace(first, unknown=first.threads, alarming=0), *others))
    row = client.get("/").text.partition("/nodes/n1")[2].partition("</tr>")[0]
    assert '<td class="number">–</td>' in row


def test_a_replay_says_that_its_clock_is_that_of_the_recording(client, published):
    assert "of the recording" not in client.get("/").text
    published.replayed = True
    published.snapshot = replace(published.snapshot, source="replay of day1 at 20×")
    assert "You see a replay of day1 at 20× real time." in client.get("/events").text


def test_every_page_reports_halted_learning_and_what_to_do(client, published):
    learning.halt(published.home, "an anomaly was confirmed; `twin learn resume` goes on", "2026-11-14", 1.0)
    for path in PAGES:
        assert "learning is halted: an anomaly was confirmed; `twin learn resume` goes on" in client.get(path).text
    client.post("/models", data={"action": "resume"})
    assert "learning is halted" not in client.get("/").text


def test_browsers_cache_static_files_until_they_change(client):
    style = next(a["href"] for tag, a in Tags(client.get("/").text).tags if a.get("href", "").endswith("twin.css"))
    assert "immutable" in client.get(style).headers["cache-control"]


def test_before_the_first_score_the_page_says_so(client, published):
    published.publish(replace(nothing_yet("this host"), ready_in_s=42), None)
    text = client.get("/").text
    assert "Warming up" in text
    assert "42 s" in text
    assert "Nothing strange" not in text
    assert client.get("/embedding").status_code == client.get("/models").status_code == 200
    assert client.get("/pictures/cluster").json()["labels"] == []
    assert client.get("/pictures/embedding").json()["points"] == []


@pytest.mark.parametrize("path", ["/nodes/n9", "/events/e9", "/jobs/99"])
def test_a_missing_page_is_a_404_that_says_what_is_missing(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert path.rpartition("/")[2] in answer.text


@pytest.mark.parametrize("path", ["/pictures/node?node=n9", "/pictures/events/e9", "/pictures/thread?node=n1&cpu=9"])
def test_a_missing_picture_is_a_404(client, path):
    assert client.get(path).status_code == 404


def test_an_events_page_names_the_channel_and_its_numbers(client):
    text = client.get("/events/e1").text
    assert WHY.sentence in text
    assert all(part in text for part in ("iowait", "70.0 %", "2.0 %", "threads 0-1"))


def test_htmx_gets_only_the_block_it_asks_for(client):
    text = client.get("/", headers={"HX-Request": "true", "HX-Target": "nodes"}).text
    assert "<table>" in text
    assert "<html" not in text


def test_a_verdict_is_stored_and_undone(client, published):
    asked = {"HX-Request": "true", "HX-Target": "verdict"}
    answer = client.post("/events/e1", data={"action": "confirmed", "comment": " disk 3 "}, headers=asked)
    assert "Confirmed" in answer.text
    case = published.store.event("e1")
    assert (case.verdict, case.comment) == ("confirmed", "disk 3")
    client.post("/events/e1", data={"action": "undo"}, headers=asked)
    assert published.store.event("e1").verdict == ""


def test_a_verdict_without_htmx_is_stored_and_answered_with_the_whole_page(client, published):
    form = re.search(r'<form method="(\w+)" action="([^"]+)" hx-post', client.get("/events/e1").text)
    answer = client.request(form[1], form[2], data={"action": "dismissed", "comment": ""})
    assert published.store.event("e1").verdict == "dismissed"
    assert answer.text.startswith("<!doctype html>")


def test_many_events_get_a_verdict_and_are_undone_at_once(client, published):
    published.store.write([(replace(EVENT, id=f"m{i}"), WHY) for i in range(3)])
    asked = {"HX-Request": "true", "HX-Target": "listing"}
    answer = client.post("/events", data={"action": "dismissed", "event": ["m0", "m2"]}, headers=asked)
    assert "2 events dismissed" in answer.text
    assert [published.store.event(f"m{i}").verdict for i in range(3)] == ["dismissed", "", "dismissed"]
    client.post("/events", data={"action": "undo", "event": ["m0", "m2"]}, headers=asked)
    assert {published.store.event(f"m{i}").verdict for i in range(3)} == {""}


def test_the_undo_of_a_list_does_not_undo_what_another_person_has_decided_since(client, published):
    published.store.write([(replace(EVENT, id=f"m{i}"), WHY) for i in range(2)])
    client.post("/events", data={"action": "dismissed", "event": ["m0", "m1"]})
    published.store.vet(["m1"], "confirmed", who="bob", now_s=2.0)
    answer = client.post("/events", data={"action": "undo", "event": ["m0", "m1"]})
    assert (answer.status_code, "bob has changed the verdict of event m1" in answer.text) == (422, True)
    assert [published.store.event(f"m{i}").verdict for i in range(2)] == ["dismissed", "confirmed"]
    assert client.post("/events/m1", data={"action": "undo"}).status_code == 200  # its page shows whose verdict it is
    assert published.store.event("m1").verdict == "dismissed"


def test_the_role_read_sees_no_forms(client, published):
    token = Tokens(published.store.database).add("eve", "read", 1.0)
    text = client.get("/events", headers={"Authorization": f"Bearer {token}"}).text
    assert "/events/e1" in text
    assert 'name="event"' not in text


def test_an_invalid_verdict_is_refused_with_a_reason(client):
    assert client.post("/events", data={"action": "confirmed", "event": ["none"]}).status_code == 404
    assert client.post("/events/e1", data={"action": "undo"}).json()["detail"].startswith("nothing to undo")
    assert client.post("/events/e1", data={"action": "praised"}).status_code == 422
    assert client.post("/events", data={"action": "confirmed"}).status_code == 422


def test_hostile_names_and_comments_are_text(client, published):
    event = replace(EVENT, id="h1", places=((HOSTILE, (0,)),), jobs=(HOSTILE,), owner=HOSTILE, view=HOSTILE)
    published.store.write([(event, WHY)])
    published.store.vet(["h1"], "dismissed", who=HOSTILE, comment=HOSTILE, now_s=1.0)
    now = snapshot()
    job, node = replace(now.jobs[0], job=HOSTILE, owner=HOSTILE), replace(now.nodes[0], node=HOSTILE)
    published.publish(
        replace(now, jobs=(job,), nodes=(node,), events=(event,), problems=(HOSTILE,), source=HOSTILE), None
    )
    paths = ("/", "/events?status=all", "/events/h1", "/jobs", f"/jobs/{quote(HOSTILE)}", f"/nodes/{quote(HOSTILE)}")
    for path in (*paths, f"/events?node={quote(HOSTILE)}", f"/?q={quote(HOSTILE)}"):
        text = client.get(path).text
        assert "<img" not in text
        assert not [a for _, a in Tags(text).tags if "onerror" in a]


def test_thousands_of_open_events_are_split_into_pages(client, published):
    many = [replace(EVENT, id=f"{i:05}", onset_s=i) for i in range(2_000)]
    published.store.write((event, WHY) for event in many)
    published.publish(replace(snapshot(), events=tuple(many)), None)
    first, last = client.get("/events").text, client.get("/events?page=21").text
    assert first.count('name="event"') == 100
    assert "page 1 of 21" in first
    assert "page 21 of 21" in last
    assert client.get("/").text.count("/events/0") < 100


def test_filters_select_events(client, published):
    published.store.write([(replace(EVENT, id="shut", end_s=9_990), WHY)])
    assert "/events/shut" not in client.get("/events").text
    assert "/events/shut" in client.get("/events?status=closed").text
    assert "/events/e1" not in client.get("/events?verdict=confirmed").text
    assert "/events/e1" in client.get("/events?node=n1&job=17").text
    assert "/events/e1" not in client.get("/events?node=n2").text


def test_links_of_earlier_releases_select_by_verdict(client, published):
    assert "/events/e1" in client.get("/events?said=none").text
    assert "/events/e1" not in client.get("/events?said=confirmed").text


def test_a_replay_neither_learns_nor_shows_the_forms_for_it(client, published, monkeypatch):
    monkeypatch.setattr(published, "replayed", True)
    page = client.get("/models").text
    assert "A replay does not learn." in page
    assert "Freeze learning" not in page
    for answer in (
        client.post("/models", data={"action": "freeze"}),
        client.post("/api/v1/learning", json={"action": "freeze"}),
        client.post("/api/v1/models/rollback"),
        client.post("/api/v1/models/any/promote", json={}),
    ):
        assert (answer.status_code, "a replay neither learns" in answer.text) == (409, True)
    assert not (published.home / "learning.json").exists()


def test_freezing_and_resuming_learning_is_in_the_audit_log(client, published):
    client.post("/models", data={"action": "freeze", "reason": "exams"})
    assert learning.read_state(published.home).frozen == "exams"
    assert "exams" in client.get("/models").text
    client.post("/models", data={"action": "resume"})
    assert learning.read_state(published.home).status == "learning"
    assert [entry.action for entry in published.store.audit()[:2]] == ["resume", "freeze"]


def test_a_rollback_without_an_earlier_champion_is_refused(client):
    answer = client.post("/models", data={"action": "rollback"})
    assert answer.status_code == 409
    assert "no previous champion" in answer.json()["detail"]


def test_in_shadow_every_page_says_so_and_events_are_marked(client, published):
    assert "would have been raised" not in client.get("/events").text
    published.may_be_in_shadow = True
    pages = {path: client.get(path).text for path in PAGES}
    assert all("nobody is notified and no alert fires" in text for text in pages.values())
    assert all('data-state="shadow">shadow<' in text for text in pages.values())
    assert all("would have been raised</span>" in pages[path] for path in ("/events", "/events/e1"))
    assert client.get("/api/v1/snapshot").json()["shadow"] is True
    assert client.get("/api/v1/events").json()["events"][0]["in_shadow"] is True
    learning.end_shadow(published.home, "learned here", EVENT.seen_s - 1.0)
    assert "would have been raised" not in client.get("/events").text
    assert client.get("/api/v1/models").json()["shadow"]["because"] == "learned here"
    assert "learned here" in client.get("/models").text
    assert client.get("/api/v1/events").json()["events"][0]["in_shadow"] is False


def test_waiting_jobs_have_their_start_its_interval_and_the_age_of_the_forecast(client, published):
    assert "Waiting" not in client.get("/jobs").text
    published.starts = forecast()
    page = client.get("/jobs").text
    row = re.search(r"<tr><td><span class=\"cut\">4711<.*?</tr>", page, re.S)[0]
    assert re.findall(r'<time datetime="(.{19})', row)[:3] == [
        "1970-01-01T00:25:00",
        "1970-01-01T00:20:00",
        "1970-01-01T00:33:20",
    ]
    assert "no forecast of starts: squeue did not answer" in page
    assert "50 % started within a minute of their first forecast, and 100 % within its 80 % interval" in page
    part = client.get("/jobs?q=nobody", headers={"HX-Request": "true", "HX-Target": "waiting"}).text
    assert "4711" not in part
    assert "<html" not in part


def test_a_forecast_that_was_never_made_is_said_to_be_missing(client, published):
    published.starts = StartBoard()
    assert "no forecast yet" in client.get("/jobs").text


def test_the_api_lists_starts_with_their_age_or_says_what_to_configure(client, published):
    answer = client.get("/api/v1/starts")
    assert (answer.status_code, "queue.site" in answer.json()["detail"]) == (404, True)
    published.starts = forecast()
    found = client.get("/api/v1/starts").json()
    assert found["waiting"][0]["job"] == "4711"
    assert found["age_s"] > 0
    assert found["record"]["within_minute_ratio"] == 0.5


def test_the_calibration_of_forecasts_is_a_metric(client, published):
    assert "twin_start_" not in client.get("/metrics").text
    published.starts = forecast()
    text = client.get("/metrics").text
    for line in ("forecasts_total 3", "judged_total 2", "within_minute_ratio 0.5", "interval_ratio 1", "lost_total 0"):
        assert f"\ntwin_start_{line}\n" in text
    published.starts = StartBoard()
    assert "\ntwin_start_within_minute_ratio " not in client.get("/metrics").text


def forecast() -> StartBoard:
    job = StartAnswer("4711", "<b>ada", 200.0, 500.0, 1000.0, 480.0, 900.0, 3600.0, 0.9, 20, "user")
    record = StartRecord(3, 2, 0, 0.5, 1.0)
    return StartBoard(1000.0, (job,), 2, ("a note",), "no forecast of starts: squeue did not answer", 1.0, record)
