"""Errors as a person meets them: a sentence in our layout, and HEAD answers like GET."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute
from tests.service.web.test_route_tables import GROUPS, NAMES, routes

from clustertwin.service.web.pages.events import NOTHING_MARKED

BROWSER = {"Accept": "text/html,application/xhtml+xml"}
HTMX = {"HX-Request": "true", "HX-Target": "listing"}


@pytest.mark.parametrize("action", ["confirmed", "dismissed", "new-normal", "undo"])
def test_a_verdict_with_nothing_marked_is_a_sentence_in_the_list(client, published, action):
    answer = client.post("/events", data={"action": action, "comment": ""}, headers=HTMX)
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("text/html")
    assert NOTHING_MARKED in answer.text
    assert "/events/e1" in answer.text  # the list is still there
    assert published.store.event("e1").verdict == ""


def test_an_unknown_address_is_a_page_for_a_browser(client):
    answer = client.get("/nosuch", headers=BROWSER)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "There is no page /nosuch." in answer.text
    assert '<nav aria-label="Pages">' in answer.text


@pytest.mark.parametrize(("path", "headers"), [("/nosuch", {}), ("/api/v1/nosuch", BROWSER), ("/api/v1/nosuch", {})])
def test_an_unknown_address_is_json_for_a_program_and_in_the_api(client, path, headers):
    answer = client.get(path, headers=headers)
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


def test_an_address_in_an_error_page_is_escaped(client):
    assert "<img" not in client.get("/<img src=x>", headers=BROWSER).text


def test_an_invalid_filter_is_a_page_with_a_sentence(client):
    answer = client.get("/events?status=strange", headers=BROWSER)
    assert answer.status_code == 422
    assert "“status” is not valid: Input should be" in answer.text.replace("&#39;", "'")
    assert '"loc"' not in answer.text


def test_an_invalid_form_is_one_sentence_for_htmx(client):
    answer = client.post("/events/e1", data={"action": "praised"}, headers=HTMX)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("“action” is not valid: Input should be")


def test_the_api_keeps_its_validation_errors(client):
    answer = client.post("/api/v1/events/e1/verdict", json={"verdict": "perhaps"}, headers=BROWSER)
    assert answer.json()["detail"][0]["loc"] == ["body", "verdict"]


def readable(stage) -> list[str]:
    """The address of every route that answers GET, with the names of the sample state."""
    paths = [
        route.path.replace(":path", "").format(
            **NAMES, kind="maintenance", number=1, version="v", node_id=1, action_id=1, name="weights"
        )
        for group in GROUPS
        for route in routes(group, stage)
        if isinstance(route, APIRoute) and "GET" in route.methods
    ]
    return [*paths, "/healthz", "/metrics", "/favicon.ico", "/nosuch"]


@pytest.mark.medium
def test_head_answers_wherever_get_does(client, stage, published):
    paths = readable(stage)
    assert len(paths) > 25
    for path in paths:
        if path.endswith("/stream"):
            continue  # a GET never ends
        query = "?node=n1&cpu=0" if path.startswith("/pictures/") else ""
        got, head = client.get(path + query, headers=BROWSER), client.head(path + query, headers=BROWSER)
        assert head.status_code == got.status_code, path
        assert head.content == b"", path
        assert head.headers.get("content-type") == got.headers.get("content-type"), path
        assert "content-security-policy" in head.headers


def test_head_of_the_stream_ends(client):
    answer = client.head("/api/v1/stream")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_head_of_a_route_that_only_changes_something_is_refused(client):
    assert client.head("/quiet/maintenance").status_code == 405
