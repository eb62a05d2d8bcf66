"""Records of nights in MLflow: in a database in the home, and on a real tracking server."""

import os
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests import servers
from tests.servers import free_address, running

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.learning.champions import champion_store, registry_spool, version_store
from clustertwin.telemetry.learning.champions.fencing_lock import next_fence
from clustertwin.telemetry.learning.champions.mlflow_registry import MODEL, MlflowRegistry, embedded_uri
from clustertwin.telemetry.learning.champions.registry import NightRecord
from clustertwin.telemetry.learning.champions.registry_process import RegistryProcess
from clustertwin.telemetry.learning.night.nightly_cycle import run_night
from clustertwin.telemetry.models.model_store import ModelError


def client_of(registry):
    """Import MLflow late: it takes seconds, and the fast tests do not need it."""
    mlflow = pytest.importorskip("mlflow")
    return mlflow.MlflowClient(tracking_uri=registry.uri, registry_uri=registry.uri)


@contextmanager
def tracking_server(directory, address=None):
    address = address or free_address()
    directory.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", address.rpartition(":")[2],
        "--workers", "1", "--backend-store-uri", f"sqlite:///{directory}/mlflow.db",
        "--artifacts-destination", str(directory / "artifacts"),
    ]  # fmt: skip
    os.environ |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with running(directory, address, command, "/health") as server:
        try:
            yield server
        finally:
            stop(server)


def stop(server):
    """Kill the server and its workers: they would outlive it."""
    with suppress(psutil.NoSuchProcess):
        for process in (*psutil.Process(server.process.pid).children(recursive=True), server.process):
            process.kill()
    server.process.wait()


def three_nights(make_context, open_registry):
    nights = []
    for number in (2, 3, 4):
        context, day = make_context(number, open_registry=open_registry)
        nights.append(run_night(context, day))
    return context, nights


def versions_of(registry):
    client = client_of(registry)
    return client, {v.tags.get("version"): v for v in client.search_model_versions(f"name = '{MODEL}'")}


@pytest.mark.slow
def test_three_nights_are_in_the_embedded_registry_with_their_lineage(make_context, tmp_path):
    registry = MlflowRegistry(embedded_uri(tmp_path))
    context, nights = three_nights(make_context, lambda: registry)
    assert all("1 record sent" in night.registry for night in nights)
    assert registry_spool.waiting(context.home) == []
    client, versions = versions_of(registry)
    serving = champion_store.read_champion(context.home)
    assert (
        client.get_model_version_by_alias(MODEL, "champion").tags["version"] == serving.version == registry.champion()
    )
    run_ = client.get_run(versions[serving.version].run_id)
    assert run_.data.params["day"] in {night.day for night in nights}
    artifacts = {item.path for item in client.list_artifacts(run_.info.run_id, "model")}
    assert {"model/weights.safetensors", "model/model.json", "model/lineage.json"} <= artifacts
    assert {item.path for item in client.list_artifacts(run_.info.run_id, "night")} == {
        "night/duel.png",
        "night/night.json",
    }
    children = client.search_runs([run_.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run_.info.run_id}'")
    assert {child.info.run_name for child in children} == {"champion", "linear/scratch"}
    assert all(child.data.metrics["error"] > 0 for child in children)

    fetched = tmp_path / "fetched"
    registry.fetch(serving.version, fetched)
    assert version_store.digest(fetched) == serving.sha256
    # Sending a record again changes nothing.
    before = len(client.search_runs([run_.info.experiment_id]))
    registry.add_night(_record(context, nights[-1]))
    assert len(client.search_runs([run_.info.experiment_id])) == before

    # Roll back to the first champion, which no night registered.
    for _ in serving.before:
        back = champion_store.rollback(context.home, next_fence(context.home), 0.0)
        assert registry_spool.open_and_sync(context.home, lambda: registry) == "champion is up to date"
        assert registry.champion() == back.version
    registry.fetch(back.version, tmp_path / "first")
    assert version_store.digest(tmp_path / "first") == back.sha256


def _record(context, night):
    return NightRecord(
        night.day, {"day": night.day}, {}, {"champion": {}}, str(context.home / "nights" / night.day / "report")
    )


@pytest.mark.slow
def test_a_foreign_model_in_the_registry_is_refused(tmp_path):
    registry = MlflowRegistry(embedded_uri(tmp_path))
    client = client_of(registry)
    experiment = client.create_experiment("other", artifact_location=(tmp_path / "other").as_uri())
    run_ = client.create_run(experiment)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.pkl").write_bytes(b"\x80\x04")
    client.log_artifacts(run_.info.run_id, str(tmp_path / "model"), "model")
    client.create_registered_model(MODEL)
    client.create_model_version(
        MODEL, f"{run_.info.artifact_uri}/model", run_.info.run_id, tags={"version": "linear-x"}
    )
    client.set_registered_model_alias(MODEL, "champion", "1")
    with pytest.raises(ModelError, match="SHA-256"):
        registry.fetch("linear-x", tmp_path / "fetched")
    with pytest.raises(ModelError, match="no version"):
        registry.fetch("linear-y", tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


@pytest.mark.slow
def test_a_registry_that_does_not_answer_is_a_source_error(tmp_path):
    with pytest.raises(SourceError, match=r"127\.0\.0\.1"):
        MlflowRegistry(f"http://{free_address()}").add_night(NightRecord("2026-01-02", {}, {}, {}, str(tmp_path)))


@pytest.mark.real
@pytest.mark.slow
def test_a_real_server_that_dies_during_a_night_gets_its_record_later(make_context, tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "READY_S", 120.0)  # it needs nine seconds, and longer next to other tests
    with tracking_server(tmp_path / "server") as server:
        registry = MlflowRegistry(server.url)
        context, day = make_context(2, open_registry=lambda: registry)
        first = run_night(context, day)
        assert first.registry == "1 record sent"
        assert registry.champion() == first.champion
        context, day = make_context(3, open_registry=lambda: registry)

        def kill(place):
            if place == "before judge":
                stop(server)

        second = run_night(replace(context, crash_point=kill), day)
        assert second.outcome in ("promoted", "kept")
        assert "waits" in second.registry
        assert [record.name for record in registry_spool.waiting(context.home)] == [day.name]
        address = server.address
    with tracking_server(tmp_path / "server", address):
        context, day = make_context(4, open_registry=lambda: registry)
        third = run_night(context, day)
        assert third.registry == "2 records sent"
        client, _ = versions_of(registry)
        experiment = client.get_experiment_by_name(MODEL).experiment_id
        days = {night_run.data.params.get("day") for night_run in client.search_runs([experiment])} - {None}
        assert days == {"2026-01-02", "2026-01-03", "2026-01-04"}
        assert registry.champion() == champion_store.read_champion(context.home).version


def test_an_error_of_a_server_is_one_sentence_without_its_password_or_escapes():
    registry = object.__new__(MlflowRegistry)
    registry.uri = "https://ada:secret@mlflow.example.org"
    with pytest.raises(SourceError) as raised, registry._errors_as_source_error():
        raise MemoryError
    assert str(raised.value) == "https://mlflow.example.org: MemoryError: "
    with pytest.raises(SourceError, match=r"RuntimeError: \\x1b\[2Jhello$"), registry._errors_as_source_error():
        raise RuntimeError("\x1b[2Jhello\nworld")


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", *[b" "] * 1000],
        [b"HTTP/1.1 429 Later\r\nRetry-After: 1000000\r\nContent-Length: 0\r\n\r\n"],
    ],
    ids=["byte by byte", "asks to wait"],
)
def test_a_server_that_keeps_its_client_waiting_does_not_keep_the_night(answer):
    pytest.importorskip("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve_slowly, args=(listener, answer), daemon=True).start()
        registry = RegistryProcess(f"http://127.0.0.1:{listener.getsockname()[1]}", within_s=15)
        with pytest.raises(SourceError, match="did not finish within 15 s"):
            registry.set_champion("v", Path("nowhere"), "")


def serve_slowly(listener, pieces):
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.recv(65536)
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.5)


@pytest.mark.slow
def test_a_server_that_cannot_be_used_is_named():
    pytest.importorskip("mlflow")
    with pytest.raises(SourceError, match=r"nonsense://x: .*unsupported URI 'nonsense://x'"):
        RegistryProcess("nonsense://ada:secret@x").set_champion("v", Path("nowhere"), "")
