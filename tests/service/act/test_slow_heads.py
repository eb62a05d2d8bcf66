"""Servers that send the head of an answer byte by byte: helpers, slurmrestd and Prometheus. Each is left in time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from clustertwin.core.errors import SourceError
from clustertwin.service.act import evidence_sources, slurm_rest
from clustertwin.service.act.evidence_sources import _ask
from clustertwin.service.act.slurm_rest import RestSettings, SlurmRest
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server whose heads never end: a few bytes, ten times a second, each long before any timeout."""
    stop, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def drip(client: socket.socket) -> None:
        try:
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\n")
            while not stop.wait(0.1):
                client.sendall(b"X: y\r\n")
        except OSError:
            pass
        finally:
            client.close()

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def ends(work) -> object:
    """What the work returns or raises. A minute is far beyond every deadline here."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    give_up_s = time.monotonic() + 60
    while not found and time.monotonic() < give_up_s:
        time.sleep(0.05)
    assert found, "it still waits"
    return found[0]


@pytest.mark.medium
def test_a_helper_cannot_hold_the_hand(dripping, monkeypatch):
    monkeypatch.setattr(evidence_sources, "TIMEOUT_S", 1.0)
    with httpx.Client(timeout=1.0) as client:
        assert ends(lambda: _ask(client, f"{dripping}/evidence", "n1", "42", 0)) == "n1: the answer took too long"


@pytest.mark.medium
def test_slurmrestd_cannot_hold_the_hand(dripping, monkeypatch):
    monkeypatch.setattr(slurm_rest, "TIMEOUT_S", 1.0)
    error = ends(lambda: SlurmRest(RestSettings(dripping))(["squeue", "--format=x"]))
    assert isinstance(error, SourceError)
    assert "the answer took too long" in str(error)


@pytest.mark.medium
def test_prometheus_cannot_hold_its_reader(dripping):
    error = ends(lambda: HttpClient(Endpoint(dripping, deadline_s=1.0)).get("/api/v1/query"))
    assert isinstance(error, SourceError)
    assert "no response within 1 s" in str(error)
