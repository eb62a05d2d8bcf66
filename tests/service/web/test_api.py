"""The API through a real client: it agrees with the state, and refuses what is not allowed."""

from __future__ import annotations

import numpy as np
import pytest
from fastapi.testclient import TestClient

from clustertwin.core.errors import SettingsError
from clustertwin.service.application import create_app
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.access import COOKIE
from clustertwin.service.web.binding import Binding, check_binding
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import Explanation, Ratio

HOSTILE = "<script>alert(1)</script>"
EVENT = Event("e1", (("n1", (0, 1)),), (HOSTILE,), "ada", 100, 160, None, 4.5, "density", "linear-x")
WHY = Explanation("density", 60, 160, 80, 2, 5, "job", (Ratio("iowait", 0.7, 0.02, None),))


@pytest.fixture
def client(app, state):
    state.store.write([(EVENT, WHY)])
    return TestClient(app, base_url="http://127.0.0.1:8790")


def test_events_are_listed_vetted_and_undone(client, state):
    listed = client.get("/api/v1/events", params={"open": True}).json()
    assert (listed["total"], listed["events"][0]["why"]["channel"]) == (1, "iowait")
    vetted = client.post("/api/v1/events/e1/verdict", json={"verdict": "confirmed", "comment": HOSTILE})
    assert (vetted.status_code, vetted.json()["verdict"]) == (200, "confirmed")
    assert state.store.event("e1").comment == HOSTILE
    assert client.get("/api/v1/events/e1").json()["audit"][0]["action"] == "vet"
    assert client.post("/api/v1/events/e1/undo").json()["verdict"] == ""
    many = client.post("/api/v1/verdicts", json={"ids": ["e1"], "verdict": "new-normal"})
    assert many.json()[0]["verdict"] == "new-normal"


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/api/v1/events/nonsense", None, 404),
        ("POST", "/api/v1/events/nonsense/verdict", {"verdict": "confirmed"}, 404),
        ("POST", "/api/v1/events/e1/verdict", {"verdict": "perhaps"}, 422),
        ("POST", "/api/v1/events/e1/undo", None, 409),
        ("GET", "/api/v1/nodes/nonsense", None, 404),
        ("GET", "/api/v1/nodes/nonsense/traces", None, 404),
        ("GET", "/api/v1/jobs/nonsense", None, 404),
        ("POST", "/api/v1/models/nonsense/promote", {}, 409),
        ("POST", "/api/v1/models/rollback", None, 409),
        ("POST", "/api/v1/silences", {"until_s": 1}, 422),
        ("DELETE", "/api/v1/silences/7", None, 404),
        ("GET", "/static/../../../../etc/passwd", None, 404),
        ("GET", "/static/%2e%2e/%2e%2e/app.py", None, 404),
        ("GET", "/static/..%2f..%2fapp.py", None, 404),
        ("POST", "/api/v1/models/..%2f..%2fetc/promote", {}, 404),
    ],
)
def test_an_invalid_request_is_a_client_error(client, method, path, body, code):
    assert client.request(method, path, json=body).status_code == code


def test_a_foreign_host_is_refused_and_a_known_name_is_not(state):
    client = TestClient(create_app(state, Binding(names=("twin.example.org",))), base_url="http://127.0.0.1")
    assert client.get("/api/v1/snapshot", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/api/v1/snapshot", headers={"Host": "twin.example.org:8790"}).status_code == 200


def test_another_site_cannot_change_anything(client, state):
    body = {"verdict": "confirmed"}
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert client.post("/api/v1/events/e1/verdict", json=body, headers=headers).status_code == 403
    assert state.store.event("e1").verdict == ""
    same = {"Origin": "http://127.0.0.1:8790", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/v1/events/e1/verdict", json=body, headers=same).status_code == 200


@pytest.mark.parametrize(
    ("role", "read", "vet", "admin"), [("read", 200, 403, 403), ("vet", 200, 200, 403), ("admin", 200, 200, 409)]
)
def test_each_role_has_its_rights_and_no_others(client, state, role, read, vet, admin):
    token = Tokens(state.store.database).add("ada", role, 0.0)
    bearer = {"Authorization": f"Bearer {token}"}
    assert client.get("/api/v1/snapshot").status_code == 401
    assert client.get("/api/v1/snapshot", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/api/v1/snapshot", headers=bearer).status_code == read
    body = {"verdict": "confirmed"}
    assert client.post("/api/v1/events/e1/verdict", json=body, headers=bearer).status_code == vet
    assert client.post("/api/v1/models/rollback", headers=bearer).status_code == admin
    if vet == 200:
        assert state.store.event("e1").who == "ada"
    assert token not in str([tuple(row) for row in state.store.database.rows("SELECT * FROM tokens")])


def test_a_cookie_without_an_origin_cannot_change_anything(client, state):
    tokens = Tokens(state.store.database)
    token = tokens.add("ada", "vet", 0.0)
    assert client.get("/api/v1/snapshot", headers={"Cookie": f"{COOKIE}={token}"}).status_code == 401
    cookie = {"Cookie": f"other=1; {COOKIE}={tokens.start_session(token)}"}
    assert client.get("/api/v1/snapshot", headers=cookie).status_code == 200
    assert client.post("/api/v1/events/e1/verdict", json={"verdict": "confirmed"}, headers=cookie).status_code == 403


def test_beyond_loopback_tls_and_a_token_are_needed(tmp_path):
    store = Store(tmp_path / "state.sqlite")
    tokens = Tokens(store.database)
    open_door = Binding("0.0.0.0")
    with pytest.raises(SettingsError, match=r"needs TLS .* and at least one token"):
        check_binding(open_door, tokens)
    tokens.add("ada", "admin", 0.0)
    with pytest.raises(SettingsError, match="needs TLS"):
        check_binding(open_door, tokens)
    check_binding(Binding("0.0.0.0", certificate="c.pem", key="k.pem"), tokens)
    check_binding(Binding("127.0.0.1"), tokens)
    store.close()


def test_every_answer_has_the_security_headers(client):
    for path in ("/api/v1/snapshot", "/", "/nonsense", "/metrics"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_a_hostile_job_name_is_escaped_on_every_page(client):
    for path in ("/", "/events", "/events/e1"):
        page = client.get(path)
        assert page.status_code == 200
        assert HOSTILE not in page.text


def test_too_large_a_body_is_refused(client):
    assert client.post("/api/v1/verdicts", content=b" " * (2 << 20)).status_code == 413


@pytest.mark.medium
def test_the_api_agrees_with_the_loop(app, stage, watched):
    vars(stage).update(vars(watched.state))
    stage.publish(stage.snapshot, stage.detector)  # the loop of the session may have ended minutes ago
    client = TestClient(app, base_url="http://127.0.0.1")
    snapshot = client.get("/api/v1/snapshot").json()
    assert (snapshot["phase"], len(snapshot["nodes"])) == ("watching", 2)
    name = snapshot["nodes"][0]["node"]
    node = client.get(f"/api/v1/nodes/{name}").json()
    assert len(node["threads_scored"]) == 8
    traces = client.get(f"/api/v1/nodes/{name}/traces", params={"seconds": 50, "reconstructed": True}).json()
    assert np.shape(traces["values"]) == np.shape(traces["reconstructed"]) == (8, 50, 4)
    np.testing.assert_allclose(np.sum(np.array(traces["reconstructed"]), -1), 1, atol=1e-3)
    job = snapshot["jobs"][0]["job"]
    report = client.get(f"/api/v1/jobs/{job}").json()
    assert max(map(len, report["report"].splitlines())) <= 78
    assert client.get("/api/v1/embedding").json()["points"]
    assert client.get("/healthz").text == "ok\n"
    assert "twin_" in client.get("/metrics").text
    assert client.get("/api/v1/models").json()["in_service"]["version"] == snapshot["model"]["version"]


@pytest.mark.slow
def test_schemathesis_finds_no_server_error(watched):
    """Random requests from our OpenAPI document. Their number limits the duration."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error

    app = create_app(watched.state, Binding(names=("testserver",)))
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)
    tried = 0
    for operation in schema.get_all_operations():
        operation_ok = operation.ok()
        if operation_ok.path.endswith("/stream"):
            continue  # it never ends

        @settings(
            max_examples=20,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation_ok.as_strategy())
        def ask(case):
            nonlocal tried
            tried += 1
            response = case.call()
            case.validate_response(response, checks=(not_a_server_error,))

        ask()
    assert tried > 300


def test_the_stream_sends_each_snapshot_once(client, state, monkeypatch):
    import asyncio
    from dataclasses import replace

    from clustertwin.service.web.api import stream

    monkeypatch.setattr(stream, "POLL_S", 0.001)

    class Reader:
        left = 6

        async def is_disconnected(self) -> bool:
            self.left -= 1
            if self.left == 3:
                state.snapshot = replace(state.snapshot, number=7, phase="watching")
            return self.left < 0

    async def read() -> list[bytes]:
        return [
            line
            async for line in stream._messages(stream.SnapshotMessages(state), Reader(), lambda: True, state.ending)
        ]

    lines = asyncio.run(read())
    assert [line.split(b"\n")[1] for line in lines] == [b"id: 0", b"id: 7"]
    assert b'"phase":"watching"' in lines[1]


def test_the_stream_ends_with_the_service(state, monkeypatch):
    import asyncio

    from clustertwin.service.web.api import stream

    monkeypatch.setattr(stream, "POLL_S", 0.001)
    answers = iter([False, False, True])
    monkeypatch.setattr(state, "ending", lambda: next(answers))

    class Reader:
        async def is_disconnected(self) -> bool:
            return False

    async def read() -> list[bytes]:
        return [
            line
            async for line in stream._messages(stream.SnapshotMessages(state), Reader(), lambda: True, state.ending)
        ]

    assert len(asyncio.run(asyncio.wait_for(read(), 10))) == 1
