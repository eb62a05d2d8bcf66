"""One exporter lies, another is honest: the honest node's seconds go on, and the lie is named in `problems`."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.http_answers import Handler, answering
from tests.service.conftest import ready

from clustertwin.service.live.feeds import exporter_feed
from clustertwin.service.live.feeds.exporter_feed import ExporterFeed
from clustertwin.service.live.loop import Loop
from clustertwin.telemetry.ingest.sources.exporter_protocol import ExporterSession
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.learning.champions.handover import Handover

pytestmark = pytest.mark.slow

Answer = Callable[[str], bytes]  # path -> the bytes after the head; a whole response if they begin with HTTP


@contextmanager
def exporter(answer: Answer) -> Iterator[str]:
    class Lying(Handler):
        def do_GET(self) -> None:
            body = answer(self.path)
            if body.startswith(b"HTTP/"):
                self.wfile.write(body)
            else:
                self.send(body)

    with answering(Lying) as address:
        yield f"http://{address}"


def page(node: str) -> bytes:
    return (
        b'twin_node_info{node="%s"} 1\ntwin_exporter_ring_begin_timestamp_seconds 1\n'
        b'twin_cpu_seconds_total{cpu="0",mode="user"} 1\n' % node.encode()
    )


def block(at_s: float, first: bytes = b"", jobs: bytes = b"") -> bytes:
    ticks = int(at_s * 100) % 10**9
    return b"t %.3f\ncpu0 %s 0 0 %d 0 0 0 0\n%s" % (at_s, first or b"5", ticks, jobs)


def honest(node: str, first: bytes = b"", jobs: bytes = b"") -> Answer:
    """Our exporter, with a block for each second."""
    return lambda path: page(node) if path.startswith("/metrics") else block(time.time(), first, jobs)


def many_samples() -> bytes:
    lines = (b'twin_cpu_seconds_total{cpu="%d",mode="m%d"} 1\n' % (i % 60_000, i // 60_000) for i in range(480_000))
    return b"".join(lines)


SILENT = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"
JOBS = b"".join(b"job slurm j%d 0-65535\n" % i for i in range(2000))
MANY = many_samples()
LIES: dict[str, tuple[Answer, str]] = {
    "400 digits": (honest("liar", b"9" * 400), "more than 20 digits"),
    "5000 digits": (honest("liar", b"9" * 5000), "more than 20 digits"),
    "negative chunk": (lambda path: CHUNKED, "not the size of a chunk: b'-5'"),
    "jobs": (honest("liar", b"", JOBS), "lines of jobs in a block; the limit is 1024"),
    "samples": (lambda path: MANY, "bytes; the limit is 16777216"),
    "a name of 9,000 characters": (honest("n" * 9000), "the name of a node has 9000 characters"),
    "the name of the other": (honest("victim"), "says that it is victim, but http://"),
}


@pytest.mark.parametrize("lie", LIES)
def test_one_liar_is_named_and_the_other_goes_on(state, detector, lie):
    answer, reason = LIES[lie]
    with ExitStack() as stack:
        victim = stack.enter_context(exporter(honest("victim")))
        lying = threading.Event()  # not before the victim has answered, so that the name is its own
        liar = stack.enter_context(exporter(lambda path: answer(path) if lying.is_set() else SILENT))
        feed = ExporterFeed([Endpoint(victim, deadline_s=2.0), Endpoint(liar, deadline_s=2.0)])
        stack.callback(feed.close)
        loop = Loop(state, feed, ready(Handover(state.home, detector)))
        for _ in range(3):
            loop.turn()
        lying.set()
        named = ""
        until_s = time.monotonic() + 90
        while time.monotonic() < until_s and not (named and state.snapshot.nodes):
            snapshot = loop.turn()
            named = named or next((problem for problem in snapshot.problems if reason in problem), "")
            time.sleep(0.4)
        assert liar in named
        assert [node.node for node in snapshot.nodes] == ["victim"]
        assert snapshot.lag_s < 3
        assert snapshot.failures_total == ()


def test_a_long_answer_is_parsed_in_another_thread(state):
    threads = set()
    with exporter(lambda path: MANY[: 1 << 20].rpartition(b"\n")[0] + b"\n") as url:
        feed = ExporterFeed([Endpoint(url, deadline_s=5.0)])
        real = feed._sessions[0].receive

        def receive(body):
            threads.add(threading.current_thread().name.partition("_")[0])
            return real(body)

        feed._sessions[0].receive = receive
        until_s = time.monotonic() + 90
        while not feed.problems and time.monotonic() < until_s:
            feed.take()
            time.sleep(0.05)
        feed.close()
    assert threads == {"parse"}
    assert "hardware threads; the limit is 8192" in feed.problems[0]


def test_an_exporter_whose_clock_jumps_is_named(monkeypatch):
    monkeypatch.setattr(exporter_feed, "UNUSED_ANSWERS", 4)
    jumps = itertools.cycle((3600.0, -3600.0, 0.0))
    answer = honest("jumps")
    with exporter(
        lambda path: answer(path) if path.startswith("/metrics") else block(time.time() + next(jumps))
    ) as url:
        feed = ExporterFeed([Endpoint(url, deadline_s=5.0)])
        until_s = time.monotonic() + 60
        while not any("answers, but" in problem for problem in feed.problems) and time.monotonic() < until_s:
            feed.take()
            time.sleep(0.1)
        feed.close()
    assert feed.problems == (f"{url}: answers, but no second of it can be used: samples are missing or jump",)


def test_a_refused_long_answer_rests_as_long_as_it_costs():
    long = b"t 1.000\n" + b"x" * (8 << 20)
    session = ExporterSession(Endpoint("http://n:1"))
    session.next_request(0.0)
    readings, rest_s = exporter_feed._parse(session, long)
    assert isinstance(readings, Exception)
    assert 2.0 <= rest_s < 30.0


def test_control_characters_in_names_are_spelled_out():
    job = b"job slurm %1b%5d0;x%07%e2%80%ae<b> 0\n"
    with exporter(honest("n\u202e\x1b[31m", b"", job)) as url:
        feed = ExporterFeed([Endpoint(url, deadline_s=5.0)])
        traces = []
        until_s = time.monotonic() + 90
        while not traces and time.monotonic() < until_s:
            traces = feed.take()
            time.sleep(0.5)
        feed.close()
    assert traces[0].node == "n\\u202e\\x1b[31m"
    assert [span.job for span in traces[0].spans] == ["\\x1b]0;x\\x07\\u202e<b>"]
