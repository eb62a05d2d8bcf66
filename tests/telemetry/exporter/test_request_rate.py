"""How often an address may ask, with the test's own clock."""

from __future__ import annotations

import socket

import pytest

from clustertwin.telemetry.exporter.http import request_rate, server
from clustertwin.telemetry.exporter.http.messages import HttpResponse
from clustertwin.telemetry.exporter.http.request_rate import BURST, MOST_ADDRESSES, PER_S, RequestRate
from clustertwin.telemetry.exporter.http.webconfig import WebConfig


def test_a_flood_is_refused_and_another_address_is_not():
    rate = RequestRate()
    answered = sum(rate.allows("10.0.0.1", second + i / 1000) for second in range(10) for i in range(1000))
    assert BURST + 9 * PER_S <= answered <= BURST + 10 * PER_S
    assert rate.allows("10.0.0.2", 10.0)


def test_an_address_that_pauses_is_answered_again():
    rate = RequestRate()
    assert [rate.allows("10.0.0.1", 0.0) for _ in range(100)].count(True) == BURST
    assert rate.allows("10.0.0.1", 1.0)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.9", "::1", "::ffff:127.0.0.1"])
def test_this_machine_may_ask_as_often_as_it_likes(address):
    rate = RequestRate()
    assert all(rate.allows(address, 0.0) for _ in range(1000))


def test_many_addresses_use_bounded_memory():
    rate = RequestRate()
    for number in range(10_000):
        rate.allows(f"10.0.{number // 256}.{number % 256}", 0.0)
    assert len(rate._left) == MOST_ADDRESSES


def test_a_scrape_that_is_refused_reads_nothing(monkeypatch):
    asked = []

    class Routes:
        def respond(self, request):
            asked.append(request.path)
            return HttpResponse(200, [b"page"])

    monkeypatch.setattr(request_rate.RequestRate, "allows", lambda self, address, now_s: len(asked) < 2)
    listening = server.Server("127.0.0.1", 0, WebConfig(), Routes())
    listening.start()
    try:
        with socket.create_connection(("127.0.0.1", listening.port), timeout=10) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n" * 3)
            answer = b""
            while piece := client.recv(65536):
                answer += piece
    finally:
        listening.close()
    assert asked == ["/metrics", "/metrics"]
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"429 Too Many Requests: this address asks too often" in answer
