"""Many servers at once over real sockets: bodies, refusals, silence, and closed connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.ingest.http_framing import unpack
from clustertwin.telemetry.ingest.sources import http_sweep
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.http_sweep import HttpSweep


def ask(sweep: HttpSweep, number: int = 0, within_s: float = 5.0) -> bytes | SourceError:
    sweep.request(number, "/ring", {"since": "1.5"})
    ((found, answer),) = list(sweep.responses(within_s))
    assert found == number
    return answer


@pytest.fixture
def speaking() -> Iterator[Callable[..., str]]:
    """A server that, on each connection, says these pieces after each request it hears, then hangs up."""
    listeners: list[socket.socket] = []

    def start(*answers: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    for answer in answers:
                        if not client.recv(65536):
                            break
                        client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.close()


def test_every_server_responds_and_connections_stay_open(server: Any) -> None:
    server.say(b"body")
    with closing(HttpSweep([Endpoint(f"{server.url}/{i}") for i in range(5)])) as sweep:
        for _ in range(2):
            for number in range(5):
                sweep.request(number, "/ring", {"since": "1.5"}, "text/plain")
            assert dict(sweep.responses(10.0)) == dict.fromkeys(range(5), b"body")
    paths = [path for path, _ in server.requests]
    assert sorted(paths) == sorted(f"/{i}/ring?since=1.5" for i in range(5) for _ in range(2))
    assert server.requests[0][1]["Accept"] == "text/plain"


def test_a_server_can_be_requested_again_during_the_round(server: Any) -> None:
    server.say(b"one")
    server.say(b"two")
    with closing(HttpSweep([Endpoint(server.url)])) as sweep:
        sweep.request(0, "/a", {})
        heard = []
        for _, answer in sweep.responses(5.0):
            heard.append(answer)
            if len(heard) == 1:
                sweep.request(0, "/b", {})
        assert heard == [b"one", b"two"]


def test_user_names_and_tokens_are_sent(server: Any) -> None:
    server.say(b"")
    ends = [Endpoint(server.url, username="ada", password="pw"), Endpoint(server.url, bearer_token="token")]
    with closing(HttpSweep(ends)) as sweep:
        for number in range(2):
            ask(sweep, number)
    assert [headers["Authorization"] for _, headers in server.requests] == ["Basic YWRhOnB3", "Bearer token"]


def test_a_refusal_has_the_servers_reason_and_the_next_request_works(server: Any) -> None:
    server.say(b"no ring is kept", status=404)
    server.say(b"body")
    with closing(HttpSweep([Endpoint(server.url)])) as sweep:
        assert str(ask(sweep)) == f"{server.url}/ring: HTTP 404: no ring is kept"
        assert ask(sweep) == b"body"


def test_a_closed_connection_is_opened_again(speaking: Any) -> None:
    with closing(HttpSweep([Endpoint(speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))])) as sweep:
        assert [ask(sweep) for _ in range(3)] == [b"ok"] * 3


def test_a_late_server_delays_one_round_and_its_response_is_returned_later(server: Any) -> None:
    hold = threading.Event()

    def late(request: Any) -> None:
        hold.wait(10)
        request.send_response(200)
        request.send_header("Content-Length", "4")
        request.end_headers()
        request.wfile.write(b"late")

    server.answers.append(late)
    with closing(HttpSweep([Endpoint(server.url)])) as sweep:
        sweep.request(0, "/", {})
        assert list(sweep.responses(0.05)) == []
        assert sweep.pending == {0}
        assert list(sweep.responses(60.0)) == []  # at once: nobody was asked since
        hold.set()
        heard = []
        while not heard:
            heard = list(sweep.responses(0.0))
        assert heard == [(0, b"late")]
        assert sweep.pending == frozenset()


def test_a_silent_server_is_reported_at_the_deadline(speaking: Any) -> None:
    url = speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"")
    with closing(HttpSweep([Endpoint(url, deadline_s=0.05)])) as sweep:
        sweep.request(0, "/ring", {})
        (heard,) = list(sweep.responses(0.2)) or list(sweep.responses(0.2))
    assert heard[0] == 0
    assert str(heard[1]) == f"{url}/ring: no response within 0.05 s"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not an HTTP/1 response"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n0\r\n\r\n", "not the size of a chunk"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "closed inside a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + b"x" * 99999, "more than 50000 bytes"),
    ],
)
def test_an_invalid_response_is_reported(speaking: Any, answer: bytes, reason: str) -> None:
    url = speaking(answer)
    with closing(HttpSweep([Endpoint(url, most_bytes=50_000)])) as sweep:
        heard = ask(sweep)
    assert isinstance(heard, SourceError)
    assert str(heard).startswith(f"{url}/ring: ")
    assert reason in str(heard)


def test_a_refused_connection_is_reported_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with closing(HttpSweep([Endpoint(url)])) as sweep:
        assert str(ask(sweep)) == f"{url}/ring: Connection refused"


@pytest.mark.real
def test_a_certificate_is_trusted_only_by_its_own_authority(secure: Any) -> None:
    url, certificate = secure
    with closing(HttpSweep([Endpoint(url, ca_file=str(certificate)), Endpoint(url)])) as sweep:
        for number in range(2):
            sweep.request(number, "/cert.pem", {})
        heard = dict(sweep.responses(10.0))
    assert heard[0] == certificate.read_bytes()
    assert "certificate verify failed" in str(heard[1])


@pytest.mark.real
def test_a_scheme_in_capital_letters_is_encrypted_as_well(secure: Any) -> None:
    url, certificate = secure
    with closing(HttpSweep([Endpoint(url.replace("https", "HTTPS"), ca_file=str(certificate))])) as sweep:
        sweep.request(0, "/cert.pem", {})
        assert dict(sweep.responses(10.0)) == {0: certificate.read_bytes()}


@given(st.binary(max_size=50), st.lists(st.integers(1, 9), max_size=9), st.booleans())
def test_a_response_is_complete_only_with_its_last_byte(body: bytes, cuts: list[int], chunked: bool) -> None:
    if chunked:
        pieces, at = [], 0
        for cut in [*cuts, len(body)]:
            pieces += [body[at : at + cut]] if body[at : at + cut] else []
            at += cut
        frames = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + frames
    else:
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    for end in range(len(answer)):
        assert unpack(bytearray(answer[:end]), ended=False) is None
    assert unpack(bytearray(answer), ended=False) == (200, body, True)


def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    answer = bytearray(b"HTTP/1.0 200 OK\r\n\r\nbody")
    assert unpack(answer, ended=False) is None
    assert unpack(answer, ended=True) == (200, b"body", False)


def test_servers_that_cannot_be_reached_delay_no_other_connection(speaking, monkeypatch) -> None:
    """Packets to a node without power are dropped, so that each attempt to connect lasts until its deadline."""
    released, connect = threading.Event(), http_sweep._ServerConnection.connect

    def blocked(connection) -> socket.socket:
        if "dead" not in connection.host:
            return connect(connection)
        if connection.is_late:
            released.wait(60)
        raise TimeoutError

    monkeypatch.setattr(http_sweep._ServerConnection, "connect", blocked)
    monkeypatch.setattr(http_sweep, "_CONNECTORS", 1)
    monkeypatch.setattr(http_sweep, "_LATE_CONNECTORS", 1)
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    endpoints = [Endpoint("http://dead:1"), Endpoint("http://dead:2"), Endpoint(speaking(answer))]
    with closing(HttpSweep(endpoints)) as sweep:
        try:
            for _ in range(2):
                for number in range(3):
                    sweep.request(number, "/ring", {})
                results: dict[int, bytes | SourceError] = {}
                for number, result in sweep.responses(10.0):
                    results[number] = result
                    if number == 2:
                        break
                assert results[2] == b"ok"
        finally:
            released.set()


def test_a_server_that_still_connects_at_its_deadline_is_late(monkeypatch) -> None:
    """Sixteen TLS handshakes that never end would hold the threads that connect to all others."""
    entered, released, now_s = threading.Event(), threading.Event(), [0.0]

    def hang(connection) -> socket.socket:
        entered.set()
        released.wait(60)
        raise TimeoutError

    monkeypatch.setattr(http_sweep._ServerConnection, "connect", hang)
    with closing(HttpSweep([Endpoint("https://hanging:1", deadline_s=5.0)], clock=lambda: now_s[0])) as sweep:
        try:
            sweep.request(0, "/ring", {})
            entered.wait(60)
            now_s[0] = 6.0
            ((_, failure),) = list(sweep.responses(0.0))
            assert "no response within 5 s" in str(failure)
            assert sweep._connections[0].is_late
        finally:
            released.set()
