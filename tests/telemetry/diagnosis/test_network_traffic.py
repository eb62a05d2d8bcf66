"""Bytes of the TCP sockets of a real process, and the cases in which nothing can be said."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from clustertwin.telemetry.diagnosis.kernel import network_traffic
from clustertwin.telemetry.diagnosis.kernel.network_traffic import traffic

CODE = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(server.getsockname())
other, _ = server.accept()
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Peer:
    """A process with a connection to itself, that does what it is told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def does(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        self.process.stdout.readline()

    def traffic(self) -> dict[int, int] | None:
        return traffic([self.process.pid])


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.process.kill()
    made.process.communicate()


def test_a_message_changes_the_traffic_and_silence_does_not(peer):
    before = peer.traffic()
    assert before is not None
    assert peer.traffic() == before
    peer.does("one.sendall(b'x' * 1000); other.recv(1000)")
    end_s = time.monotonic() + 10
    while sum((peer.traffic() or {}).values()) < sum(before.values()) + 2000:  # received, and acknowledged
        assert time.monotonic() < end_s


def test_a_socket_that_is_not_counted_leaves_it_unknown(peer):
    peer.does("datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); datagrams.bind(('127.0.0.1', 0))")
    assert peer.traffic() is None


def test_a_device_that_may_be_a_network_leaves_it_unknown(peer, monkeypatch):
    peer.does("device = open('/dev/zero')")
    assert peer.traffic() is not None
    monkeypatch.setattr(network_traffic, "HARMLESS", ("/dev/null",))
    assert peer.traffic() is None


def test_a_process_that_has_ended_or_has_too_many_files_leaves_it_unknown(peer, monkeypatch):
    assert traffic([2**22 + 1]) is None
    monkeypatch.setattr(network_traffic, "MOST_DESCRIPTORS", 1)
    assert peer.traffic() is None
