"""Log in and out, through the whole app with access control."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from tests.service import sample_state

from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.access import COOKIE


@pytest.fixture
def door(app, published):
    token = Tokens(published.store.database).add("ada", "read", 0.0)
    client = TestClient(app, base_url="http://127.0.0.1", headers={"Accept": "text/html"})
    return client, token


def test_the_login_returns_to_the_requested_page(door):
    client, token = door
    asked = client.get("/events/e1", follow_redirects=False)
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?to=/events/e1")
    assert 'value="/events/e1"' in client.get(asked.headers["location"]).text
    origin = {"Origin": "http://127.0.0.1"}
    answer = client.post("/login", data={"token": token, "to": "/events/e1"}, headers=origin, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/events/e1")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert sample_state.WHY.sentence in client.get("/events/e1").text
    client.post("/logout", headers=origin)
    assert client.get("/events/e1", follow_redirects=False).status_code == 303


@pytest.mark.parametrize("token", ["", "twin_wrong", "<script>"])
def test_a_wrong_token_is_refused_and_sets_no_cookie(door, token):
    answer = door[0].post("/login", data={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "This token does not exist, has expired, or was removed" in answer.text


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\nb", ""])
def test_the_login_does_not_redirect_to_another_site(door, to):
    client, token = door
    answer = client.post("/login", data={"token": token, "to": to}, follow_redirects=False)
    assert answer.headers["location"] == "/"


def test_another_site_cannot_log_a_user_in(door):
    client, token = door
    assert client.post("/login", data={"token": token}, headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_logout_revokes_the_cookie_and_the_cookie_is_not_the_token(door):
    client, token = door
    client.post("/login", data={"token": token})
    stolen = client.cookies[COOKIE]
    assert token not in stolen
    thief = {"Cookie": f"{COOKIE}={stolen}", "Accept": "application/json"}
    assert client.get("/api/v1/snapshot", headers=thief).status_code == 200
    client.post("/logout", headers={"Origin": "http://127.0.0.1"})
    client.cookies.clear()
    assert client.get("/api/v1/snapshot", headers=thief).status_code == 401


def test_a_session_ends_with_its_token(door, published):
    client, token = door
    client.post("/login", data={"token": token})
    assert client.get("/api/v1/snapshot", headers={"Accept": "application/json"}).status_code == 200
    tokens = Tokens(published.store.database)
    tokens.remove("ada", 1.0)
    tokens.add("ada", "admin", 2.0)  # another token of the same name does not revive it
    assert client.get("/api/v1/snapshot", headers={"Accept": "application/json"}).status_code == 401
