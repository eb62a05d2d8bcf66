"""The doors of the service: cookies, revoked tokens, local users, and a database that is damaged while it runs."""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import time

import pytest
from fastapi.testclient import TestClient

from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web import connections, local_users
from clustertwin.service.web.access import COOKIE, MAX_COOKIE_BYTES
from clustertwin.service.web.api import stream
from clustertwin.service.web.pages.rendering import static

HTML = {"Accept": "text/html"}


@pytest.fixture
def client(app, state):
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.mark.parametrize(
    "cookie", ['a="' + "\\\\" * 16_000 + '"', "a=b;" * 8_000, f"{COOKIE}=" + "x" * 32_000, ";" * 32_000]
)
def test_a_long_cookie_is_refused_before_it_is_parsed(client, state, cookie, monkeypatch):
    """Python's parser took three seconds for it."""
    Tokens(state.store.database).add("ada", "read", 0.0)
    parsed = []
    monkeypatch.setattr("http.cookies.BaseCookie.load", lambda self, text: parsed.append(text))
    monkeypatch.setattr("starlette.requests.cookie_parser", lambda text: parsed.append(text) or {})
    answer = client.get("/api/v1/snapshot", headers={"Cookie": cookie})
    assert answer.status_code == 431
    assert parsed == []


def test_cookies_of_other_services_on_this_host_do_no_harm(client, state):
    tokens = Tokens(state.store.database)
    session = tokens.start_session(tokens.add("ada", "read", 0.0))
    others = "; ".join(f'other{i}="\\"{i}' for i in range(400))
    assert 4000 < len(others) < MAX_COOKIE_BYTES - 100
    answer = client.get("/api/v1/snapshot", headers={"Cookie": f"{others}; {COOKIE}={session}"})
    assert answer.status_code == 200


def test_after_the_last_token_is_removed_nobody_is_an_admin(client, state):
    tokens = Tokens(state.store.database)
    assert client.get("/api/v1/snapshot").status_code == 200
    tokens.add("ada", "admin", 0.0)
    tokens.remove("ada", 1.0)
    window = {"nodes": ["*"], "start_s": 0, "end_s": 9e9}
    assert client.get("/api/v1/snapshot").status_code == 401
    assert client.post("/api/v1/maintenance", json=window).status_code == 401
    tokens.reopen(2.0)
    assert client.post("/api/v1/maintenance", json=window).status_code == 201


WINDOW = {"nodes": ["*"], "start_s": 0, "end_s": 9e9}


def test_the_audit_names_the_local_user_of_a_request_without_a_token(client, state):
    client.post("/api/v1/maintenance", json=WINDOW)
    assert state.store.audit()[0].who == f"local user {pwd.getpwuid(os.geteuid()).pw_name}"


@pytest.mark.parametrize(("uid", "name"), [(54_321, "local user 54321"), (None, "unknown local user")])
def test_another_local_user_reads_and_changes_nothing(client, state, monkeypatch, uid, name):
    """Before, any local user could put all nodes into maintenance."""
    monkeypatch.setattr(local_users, "peer_uid", lambda *addresses: uid)
    assert local_users.rights(uid) == (name, "read")
    assert client.get("/api/v1/snapshot").status_code == 200
    answer = client.post("/api/v1/maintenance", json=WINDOW)
    assert (answer.status_code, "log in with a token" in answer.json()["detail"]) == (403, True)
    assert state.store.audit() == []


def test_an_expired_token_is_refused(client, state):
    token = Tokens(state.store.database).add("ada", "read", time.time() - 100, lasts_s=90.0)
    assert client.get("/api/v1/snapshot", headers={"Authorization": f"Bearer {token}"}).status_code == 401


@pytest.mark.medium
@pytest.mark.parametrize("how", ["removed", "expired", "first token"])
def test_an_open_stream_ends_with_its_right(app, state, monkeypatch, how):
    """Through the whole app: the ASGI call returns although the client stays connected."""
    monkeypatch.setattr(stream, "POLL_S", 0.01)
    monkeypatch.setattr(stream, "RECHECK_S", 0.02)
    tokens, headers = Tokens(state.store.database), [(b"host", b"127.0.0.1")]
    if how != "first token":
        lasts_s = 1.0 if how == "expired" else None
        token = tokens.add("ada", "read", time.time(), lasts_s=lasts_s)
        headers.append((b"authorization", f"Bearer {token}".encode()))
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET",
        "path": "/api/v1/stream", "raw_path": b"/api/v1/stream", "root_path": "", "query_string": b"",
        "headers": headers, "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8790),
    }  # fmt: skip
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)
        if len(sent) == 2:  # the head and the first snapshot
            if how == "removed":
                tokens.remove("ada", time.time())
            elif how == "first token":
                tokens.add("ada", "read", time.time())

    asked = False

    async def receive() -> dict[str, object]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(asyncio.wait_for(app(scope, receive, send), 10))
    assert sent[0]["status"] == 200
    assert b"event: snapshot" in sent[1]["body"]
    assert sent[-1].get("more_body") is False


def garbage(path):
    size = path.stat().st_size
    path.write_bytes(b"\xa5" * size)


def emptied(path):
    path.write_bytes(b"")


def torn(path):
    """Every page but the first is garbage: the file opens, and reading fails."""
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


@pytest.mark.parametrize("damage", [garbage, emptied, torn])
def test_a_database_damaged_while_running_is_named_and_the_rest_answers(client, state, damage):
    """Reads use no cache: the pages of a new connection come from the damaged file."""
    path = state.store.database.path
    state.store.database.rows("PRAGMA query_only")
    state.store.database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(path)
    for connection in (state.store.database.readers["other"].connection, state.store.database._connection):
        connection.execute("PRAGMA shrink_memory")
    assert client.get("/healthz").text == "ok\n"
    assert client.get(f"{static()}/twin.css").status_code == 200
    assert client.get("/login").status_code == 200
    page = client.get("/", headers=HTML)
    assert (page.status_code, "cannot be read" in page.text) == (503, True)
    assert page.headers["content-type"].startswith("text/html")
    for url in ("/api/v1/snapshot", "/api/v1/events", "/metrics", "/events", "/nonsense"):
        answer = client.get(url)
        assert (answer.status_code, len(answer.json()["detail"].split()) > 5) == (503, True), url
    assert client.post("/login", data={"token": "twin_x"}).status_code == 503
    assert client.post("/logout", headers={"Cookie": f"{COOKIE}=x"} | {"Origin": "http://127.0.0.1"}).status_code in (
        303, 503,
    )  # fmt: skip


def test_a_damaged_row_is_a_sentence(client, state):
    from tests.service.web.test_api import EVENT, WHY

    state.store.write([(EVENT, WHY)])
    with state.store.database.transaction() as connection:
        connection.execute("UPDATE events SET places = '[['")
    answer = client.get("/api/v1/events")
    assert (answer.status_code, "event 'e1' is damaged" in answer.json()["detail"]) == (503, True)


def test_forms_that_cannot_be_read_fill_no_log(client, caplog):
    """Before authentication, each of them was a line of the log, with bytes of the client."""
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio", "python_multipart")]
    before = [(logger.level, logger.filters[:]) for logger in loggers]
    try:
        connections.limit_logs()
        for number in range(3):
            headers = {"Content-Type": "multipart/form-data; boundary=x"}
            assert client.post("/login", content=f"{number}\x1b[31m", headers=headers).status_code == 400
        assert caplog.records == []
    finally:
        for logger, (level, filters) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.filters = filters


@pytest.mark.parametrize(("path", "most"), [("/login", 1 << 13), ("/logout", 1 << 13), ("/quiet/silence", 1 << 16)])
def test_a_form_is_refused_before_the_event_loop_spends_seconds_on_it(client, path, most):
    """A megabyte of percent signs took a second and a half, and a login needs no token."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post(path, content=b"%" * (most + 1), headers=form).status_code == 413
    assert client.post(path, content=b"%" * most, headers=form).status_code != 413
