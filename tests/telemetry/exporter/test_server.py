"""HTTP: with a real client, and with sockets that break the protocol."""

from __future__ import annotations

import http.client
import socket
import time
from functools import partial

import httpx
import pytest

from clustertwin.telemetry.exporter.http import server as server_module
from clustertwin.telemetry.exporter.http.messages import parse_request
from clustertwin.telemetry.exporter.http.routes import _landing_page

get = partial(httpx.get, verify=False)  # plain HTTP: no need to load certificates each time


@pytest.fixture
def url(tree, serve) -> str:
    tree.node()
    return f"http://127.0.0.1:{serve().port}"


def raw(url: str, request: bytes) -> bytes:
    """All that comes back until the other side closes."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.sendall(request)
        data = b""
        while more := sock.recv(65536):
            data += more
        return data


def test_metrics_are_served_in_prometheus_text_format(url):
    answer = get(f"{url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'twin_cpu_seconds_total{cpu="0",mode="user"} 1234e-2\n' in answer.text


def test_a_connection_is_kept_alive(url):
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    connection.connect()
    first = connection.sock
    for path in ("/metrics", "/", "/ring", "/nothing", "/metrics"):
        connection.request("GET", path)
        connection.getresponse().read()
    assert connection.sock is first
    connection.close()


def test_requests_in_one_packet_are_answered_in_turn(url):
    two = b"GET / HTTP/1.1\r\n\r\nGET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n"
    answers = raw(url, two)
    assert answers.index(b"HTTP/1.1 200 OK") < answers.index(b"HTTP/1.1 404 Not Found")


def test_head_is_get_without_the_body(url):
    head, whole = httpx.head(f"{url}/", verify=False), get(f"{url}/")
    assert head.text == ""
    assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))


def test_the_landing_page_leads_to_the_rest_and_escapes_names(url):
    page = get(f"{url}/").text
    assert 'href="/metrics"' in page
    assert 'href="/ring"' in page
    assert "&lt;b&gt;" in _landing_page("<b>", "/m").decode()


def test_the_ring_is_streamed_from_a_given_time_on(url):
    get(f"{url}/metrics")
    text = get(f"{url}/ring?since=0").text
    assert text.startswith("t 1000.000\ncpu0 1234 4 200 4000 50 0 9 2 0 0\ncpu1 66 0 60 5000 20 0 0 0 0 0\ntwin_")
    assert text.count("\nt ") == 0  # no second block
    assert get(f"{url}/ring?since=1000.001").text == ""
    assert get(f"{url}/ring").text == text


def test_http_1_0_gets_a_response_and_an_end_of_file(url):
    get(f"{url}/metrics")
    head, _, body = raw(url, b"GET /ring HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.startswith(b"t 1000.000\ncpu0 ")


@pytest.mark.parametrize("since", ["yesterday", "nan", "inf", ""])
def test_an_invalid_time_is_refused_with_an_example(url, since):
    answer = get(f"{url}/ring?since={since}")
    assert answer.status_code == 400
    assert "/ring?since=1731700000.5" in answer.text


def test_without_a_ring_the_path_is_not_found(tree, serve):
    tree.node()
    assert get(f"http://127.0.0.1:{serve(ring_seconds=0.0).port}/ring").status_code == 404


def test_other_methods_are_refused(url):
    answer = httpx.request("DELETE", f"{url}/metrics", verify=False)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "head",
    [
        b"GET /metrics",
        b"GET /metrics HTTP/2.0",
        b"GET metrics HTTP/1.1",
        b"\xff\x00",
        b"",
        b"GET / HTTP/1.1\r\nno header",
        b"GET / HTTP/1.1\r\n folded: x",
        b"POST / HTTP/1.1\r\nContent-Length: 5",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked",
        b"GET / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 5",
        b"GET / HTTP/1.1\r\nContent-Length: 5\r\ncontent-length: 0",
        b"GET / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 0",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b",
        b"GET / HTTP/1.1\r\nHost: a\nX: b",
        b"GET / HTTP/1.1\nHost: a",
        b"GET / HTTP/1.1\r\nX: a\rb",
        b"GET / HTTP/1.1\r\nX: a\0b",
        b"GET / HTTP/1.1\r\nX : a",
    ],
)
def test_an_invalid_request_is_refused(head):
    assert parse_request(head).status == 400


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\nHost: a\n\n", b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n"])
def test_a_bare_line_feed_is_refused_at_once(url, request_):
    assert raw(url, request_).startswith(b"HTTP/1.1 400 ")


def test_a_request_that_never_ends_is_refused(url):
    answer = raw(url, b"GET / HTTP/1.1\r\n" + b"x" * 10_000)
    assert answer.startswith(b"HTTP/1.1 431 ")


def test_a_client_that_misses_its_deadline_is_disconnected(tree, serve):
    tree.node()
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
        slow.sendall(b"GET /metr")
        time.sleep(0.05)
        server.reap(time.monotonic() + server_module.REQUEST_S - 1)
        slow.sendall(b"ics")  # still welcome
        server.reap(time.monotonic() + server_module.REQUEST_S + 1)
        assert slow.recv(10) == b""


def test_a_flood_of_idle_connections_leaves_room_for_a_scrape(tree, serve, monkeypatch):
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 4)
    tree.node()
    server = serve()
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(12)]
    try:
        assert get(f"http://127.0.0.1:{server.port}/metrics").status_code == 200
        assert len(server._connections) <= 4
    finally:
        for sock in idle:
            sock.close()
