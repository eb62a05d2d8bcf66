"""The models page and the API change models and learning in the same way, and list versions without reading them."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from clustertwin.core.errors import OutputError
from clustertwin.telemetry.learning.champions import learning_state, version_store


@pytest.fixture
def client(app, state):
    return TestClient(app, base_url="http://127.0.0.1:8790")


def test_a_reason_or_version_that_is_too_long_is_refused(client, state):
    huge = {"action": "freeze", "reason": "\x01" * 200_000}
    assert client.post("/models", data=huge).status_code == 413  # before the form is taken apart
    for data in (
        {"action": "freeze", "reason": "x" * 1001},
        {"action": "promote", "version": "x" * 256},
    ):
        assert client.post("/models", data=data).status_code == 422
    assert learning_state.read_state(state.home).frozen == ""
    assert client.post("/models", data={"action": "freeze", "reason": "x" * 1000}).status_code == 200


def test_a_full_disk_is_a_507_on_the_page_and_in_the_api(client, monkeypatch):
    def full(*args):
        raise OutputError("learning.json: no space left on device")

    monkeypatch.setattr(learning_state, "freeze", full)
    for answer in (
        client.post("/models", data={"action": "freeze"}),
        client.post("/api/v1/learning", json={"action": "freeze"}),
    ):
        assert (answer.status_code, "no space left" in answer.json()["detail"]) == (507, True)


def test_the_audit_log_has_the_same_entry_for_both(client, state):
    client.post("/models", data={"action": "freeze", "reason": "exams"})
    client.post("/api/v1/learning", json={"action": "freeze", "reason": "exams"})
    entries = [(entry.action, entry.subject, entry.after) for entry in state.store.audit()]
    assert entries == [("freeze", "learning", {"reason": "exams"})] * 2


def test_stored_versions_are_hashed_once(client, state, monkeypatch):
    for name in ("a", "b"):
        (state.home / "models" / name).mkdir(parents=True)
        (state.home / "models" / name / "weights").write_text(name)
    hashed, digest = [], version_store.digest
    monkeypatch.setattr(version_store, "digest", lambda path, **options: hashed.append(path.name) or digest(path))
    first = client.get("/api/v1/models").json()["versions"]
    assert {version["version"]: version["sha256"] for version in first} == {
        name: digest(state.home / "models" / name) for name in ("a", "b")
    }
    for _ in range(3):
        assert client.get("/api/v1/models").json()["versions"] == first
        assert client.get("/models").status_code == 200
    assert sorted(hashed) == ["a", "b"]
    (state.home / "models" / "b" / "weights").write_text("other bytes")
    assert client.get("/api/v1/models").json()["versions"] != first
    assert sorted(hashed) == ["a", "b", "b"]
