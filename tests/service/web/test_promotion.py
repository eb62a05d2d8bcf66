"""A promotion on a page or through the API reaches the registry at once, or after its outage."""

import threading

import pytest
from fastapi.testclient import TestClient
from tests.telemetry.learning.conftest import make_detector  # noqa: F401  a fixture

from clustertwin.service.application import create_app
from clustertwin.telemetry.learning.champions import champion_store, registry_spool, version_store
from clustertwin.telemetry.learning.champions.mlflow_registry import MlflowRegistry, embedded_uri

pytestmark = pytest.mark.slow


@pytest.fixture
def versions(state, make_detector):  # noqa: F811
    versions = [version_store.add_version(state.home, make_detector(seed), {"night": ""}) for seed in range(2)]
    for fence, version in enumerate(versions):
        champion_store.promote(state.home, version, fence, "better", 0.0)
    return versions


def wait_for_registry():
    """Wait for the threads that update the registry."""
    for thread in threading.enumerate():
        if thread.name == "registry":
            thread.join()


def test_a_promotion_and_a_rollback_move_the_alias_at_once(state, versions, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    registry = MlflowRegistry(embedded_uri(state.home))
    client = TestClient(create_app(state), base_url="http://127.0.0.1")
    assert client.post(f"/api/v1/models/{versions[0]}/promote", json={}).status_code == 200
    wait_for_registry()
    assert registry.champion() == versions[0]
    assert client.post("/models", data={"action": "rollback"}).status_code == 200
    wait_for_registry()
    assert registry.champion() == versions[1] == champion_store.read_champion(state.home).version


def test_a_promotion_works_without_the_registry_which_is_updated_later(state, versions, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    client = TestClient(create_app(state), base_url="http://127.0.0.1")
    assert client.post("/api/v1/models/rollback").json()["version"] == versions[0]
    wait_for_registry()
    registry = MlflowRegistry(embedded_uri(state.home))
    assert registry.champion() == ""
    assert registry_spool.open_and_sync(state.home, lambda: registry) == "champion is up to date"
    assert registry.champion() == versions[0]
