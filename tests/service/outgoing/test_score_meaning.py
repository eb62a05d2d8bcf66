"""What the number of an event means: windows for scores, limits for findings; on the page and in messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.service.sample_state import EVENT, WHY
from tests.service.sample_state import state as sample_state
from typer.testing import CliRunner

from clustertwin.cli import events as events_command
from clustertwin.service.application import create_app
from clustertwin.service.outgoing.notifications import compose
from clustertwin.service.outgoing.score_meaning import score_meaning
from clustertwin.service.store.event_store import Case
from clustertwin.telemetry.detection.events.event import Event

REACHES = "a normal thread reaches this score in"
HEALTHY = "the limit that no healthy job exceeds for minutes"
HARM = replace(EVENT, view="harm", question="harm", cause="throttled", score=7.5)
CHANGE = replace(EVENT, view="change", question="change", cause="idle", score=4.5)


@pytest.mark.parametrize(
    ("event", "threshold", "name", "text"),
    [
        (replace(EVENT, score=4.0), 3.0, "score", f"{REACHES} one of 10,000 windows"),
        (replace(EVENT, score=9.0), 3.0, "score", f"{REACHES} fewer than one of a million windows"),
        (HARM, 3.0, "strength", f"2.5 times {HEALTHY}"),
        (replace(HARM, score=30.0), 3.0, "strength", f"at least 10.0 times {HEALTHY}"),
        (CHANGE, 3.0, "strength", "1.5 times the smallest change that opens an event"),
        (CHANGE, None, "strength", "how far it is beyond the smallest change that opens an event"),
        (replace(HARM, cause="out-of-memory"), 3.0, "strength", "fixed, because the kernel killed a task of the job"),
        (replace(HARM, cause="misbound"), 3.0, "strength",
         "fixed, because tasks of the job wait for a CPU while another of its CPUs is free"),
        (replace(CHANGE, cause="spinning"), 3.0, "strength",
         "fixed, because two looks at its processes show that it hangs"),
    ],
)  # fmt: skip
def test_the_text_fits_what_the_number_counts(event: Event, threshold: float | None, name: str, text: str):
    assert score_meaning(event, threshold) == (name, text)


@pytest.mark.parametrize("event", [HARM, CHANGE])
def test_the_page_of_a_finding_speaks_of_its_limit_and_not_of_windows(event: Event, tmp_path: Path):
    state = sample_state(tmp_path)
    state.store.write([(replace(event, id="e2"), WHY)])
    page = TestClient(create_app(state), base_url="http://127.0.0.1").get("/events/e2").text
    assert "<dt>Strength</dt>" in page
    assert score_meaning(event, 3.0).text in page
    assert "a normal thread reaches" not in page
    state.store.close()


def test_the_page_of_an_older_detectors_finding_has_no_ratio(tmp_path: Path):
    state = sample_state(tmp_path)
    state.store.write([(replace(HARM, id="e2", model="ae-old"), WHY)])
    page = TestClient(create_app(state), base_url="http://127.0.0.1").get("/events/e2").text
    assert "how far it is beyond the limit" in page
    state.store.close()


def test_the_page_of_a_score_speaks_of_windows(tmp_path: Path):
    state = sample_state(tmp_path)
    page = TestClient(create_app(state), base_url="http://127.0.0.1").get("/events/e1").text
    assert "<dt>Score</dt>" in page
    assert "in one of 31,623 windows" in page
    state.store.close()


def test_a_message_names_the_question_of_a_finding_and_the_view_of_a_score():
    assert "strength 7.5, question harm, model" in compose(Case(HARM, None), "opened", 0.0).body
    assert "score    4.5, view reconstruction, model" in compose(Case(EVENT, None), "opened", 0.0).body


def test_twin_events_show_says_what_the_number_means(tmp_path: Path):
    sample_state(tmp_path).store.close()
    answer = CliRunner().invoke(events_command.app, ["show", "e1", "--home", str(tmp_path)])
    assert "Score 4.5: a normal thread reaches this score in one of 31,623 windows." in answer.output, answer.output
