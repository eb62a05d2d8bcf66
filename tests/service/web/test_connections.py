"""Connections before authentication: a real server, and clients that send nothing, little, or read nothing."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import httpx
import pytest
import uvicorn

from clustertwin.service.web import connections
from clustertwin.service.web.connections import BoundedListener, RepeatFilter, bounded_protocol

BIG = b"x" * 50_000_000


async def plain_app(scope, receive, send):
    """Reads the body of a POST; answers with a large body at /big, and waits at /stream until the client leaves."""
    if scope["type"] != "http":
        return
    more = scope["method"] == "POST"
    while more:
        message = await receive()
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/stream":
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
    await send({"type": "http.response.body", "body": BIG if scope["path"] == "/big" else b"answer"})


@pytest.fixture
def served(monkeypatch):
    """A server of `plain_app` with short deadlines; its address and its listener."""
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    monkeypatch.setattr(connections, "BODY_S", 0.5)
    monkeypatch.setattr(connections, "WRITE_S", 0.5)
    listener = BoundedListener(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    listener.most = 8
    config = uvicorn.Config(
        plain_app, http=bounded_protocol(listener), ws="none", lifespan="off", log_level="warning",
        timeout_graceful_shutdown=1, timeout_keep_alive=5,
    )  # fmt: skip
    server = uvicorn.Server(config)
    server.capture_signals = threading.Lock  # a context manager that does nothing: signals belong to the main thread
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    address = listener.getsockname()
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:  # what it opens and imports at its start is not what a test of its limits is about
        assert thread.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield address, listener
    server.should_exit = True
    thread.join(60)


def url(address, path="/"):
    return f"http://127.0.0.1:{address[1]}{path}"


def wait_for_end(sock: socket.socket) -> None:
    """Wait until the server has ended the connection; TimeoutError if it does not."""
    sock.settimeout(60)
    with contextlib.suppress(ConnectionError):
        while sock.recv(65536):
            pass


@pytest.mark.medium
def test_normal_requests_are_answered_on_one_connection(served, monkeypatch):
    monkeypatch.setattr(connections, "WRITE_S", 60.0)  # a busy host reads 50 MB slowly
    monkeypatch.setattr(connections, "BODY_S", 60.0)
    with httpx.Client(verify=False) as client:
        for _ in range(3):
            assert client.get(url(served[0])).text == "answer"
        time.sleep(0.6)  # longer than the deadline of a head
        assert client.post(url(served[0]), content=b"body").text == "answer"
    assert httpx.get(url(served[0], "/big"), verify=False).content == BIG


@pytest.mark.medium
def test_an_answer_that_is_still_being_read_is_not_cut_by_the_deadline_of_the_next_request(served, monkeypatch):
    monkeypatch.setattr(connections, "WRITE_S", 60.0)
    with socket.create_connection(served[0]) as sock:
        sock.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(1.5)  # longer than the deadline of a head
        assert sum(len(piece) for piece in iter(lambda: sock.recv(1 << 20), b"")) > len(BIG)


@pytest.mark.medium
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: a", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"]
)
def test_a_client_that_does_not_finish_its_request_is_disconnected(served, sent):
    with socket.create_connection(served[0]) as sock:
        sock.sendall(sent)
        wait_for_end(sock)


@pytest.mark.medium
def test_a_client_that_sends_one_byte_at_a_time_has_no_more_time(served):
    with socket.create_connection(served[0]) as sock, pytest.raises(ConnectionError):
        send_slowly(sock)


def send_slowly(sock: socket.socket) -> None:
    """For a minute, one byte at a time; all of them would fit into the head of a request."""
    for _ in range(1200):
        sock.sendall(b"G")
        time.sleep(0.05)


def test_a_client_that_does_not_read_its_answer_is_disconnected(served):
    with socket.create_connection(served[0]) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
        deadline = time.monotonic() + 60
        while served[1]._open_clients() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert time.monotonic() < deadline


@pytest.mark.medium
def test_silent_clients_are_replaced_before_those_that_ask(served, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_S", 60.0)
    with socket.create_connection(served[0], timeout=60) as asking:
        asking.sendall(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        received = b""
        while b"begun" not in received:
            received += asking.recv(65536)
        silent = [socket.create_connection(served[0]) for _ in range(40)]
        assert httpx.get(url(served[0]), verify=False, timeout=60).text == "answer"
        assert len(served[1]._open_clients()) <= 8
        asking.settimeout(0.2)
        with pytest.raises(TimeoutError):  # still open
            asking.recv(1)
        for sock in silent:
            sock.close()


def test_streams_alone_do_not_close_the_door(served):
    streams = [socket.create_connection(served[0], timeout=60) for _ in range(8)]
    for sock in streams:
        sock.sendall(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        assert sock.recv(10) == b"HTTP/1.1 2"
    assert httpx.get(url(served[0]), verify=False, timeout=60).text == "answer"
    for sock in streams:
        sock.close()


@pytest.mark.forks  # the limit is that of the whole process, which other tests share
@pytest.mark.slow
def test_without_a_free_descriptor_the_server_goes_on(served, caplog):
    caplog.set_level(logging.WARNING)
    assert httpx.get(url(served[0]), verify=False, timeout=60).text == "answer"  # all that is imported late is imported
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = []
    try:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
        waiting = [socket.socket() for _ in range(4)]
        try:
            while True:
                own.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        for sock in waiting:
            sock.connect(served[0])
        time.sleep(0.3)
        for sock in waiting:
            sock.close()
    finally:
        for number in own:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert httpx.get(url(served[0]), verify=False, timeout=60).text == "answer"
    assert not [record for record in caplog.records if "out of system resource" in record.getMessage()]


def test_a_repeated_line_is_logged_once_a_minute_with_its_count(clock):
    limit = RepeatFilter(clock)

    def passes(text: str) -> str:
        record = logging.LogRecord("x", logging.WARNING, "", 0, text, None, None)
        return record.getMessage() if limit.filter(record) else ""

    assert [passes("bad request") for _ in range(5)] == ["bad request", "", "", "", ""]
    assert passes("another") == "another"
    clock.now_s = 61.0
    assert passes("bad request") == "bad request (and 4 more in the last minutes)"


#: The deadline of a head is far away, so only the replacement of silent clients makes room.
LIMITED = """
import resource, sys
from clustertwin.service.web import connections
connections.HEAD_S = 600.0
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from clustertwin.cli import main
sys.argv = ["twin", "up", "--no-browser", "--no-learn", "--port", "0", "--json", "--home", sys.argv[1]]
sys.exit(main())
"""


@pytest.mark.slow
def test_400_silent_sockets_leave_a_service_with_256_descriptors_answering(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", LIMITED, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    silent = []
    try:
        lines = ""
        while not lines.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            lines += line
        base = json.loads(lines)["url"]
        port = int(base.rpartition(":")[2])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # importing torch would slow the answers, with and without the sockets
            with urllib.request.urlopen(f"{base}/api/v1/snapshot", timeout=60) as answer:
                if json.load(answer)["model"]:
                    break
            time.sleep(0.2)
        for _ in range(400):
            silent.append(socket.create_connection(("127.0.0.1", port), timeout=60))
        for path in ("/healthz", "/api/v1/snapshot", "/"):
            with urllib.request.urlopen(base + path, timeout=60) as answer:
                assert answer.status == 200
        snapshot = json.load(urllib.request.urlopen(f"{base}/api/v1/snapshot", timeout=60))
        assert not [problem for problem in snapshot["problems"] if "open files" in problem]
    finally:
        for sock in silent:
            sock.close()
        process.send_signal(signal.SIGINT)
        _, logged = process.communicate(timeout=120)
    assert len(logged) < 10_000
