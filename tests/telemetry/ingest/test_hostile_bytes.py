"""Every parser that meets the network, with damaged input: it returns a sound result or raises its own error.

The suite tries a hundred inputs for each parser, `make fuzz` 100,000. Inputs that once raised a foreign error, looped
or took too long are kept as the examples of each test.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from clustertwin.core.errors import ExpositionError, InputError, SourceError
from clustertwin.telemetry.exporter.jobs.cpuset import MAX_CPU, parse_cpulist
from clustertwin.telemetry.ingest.counters import NAME_CHARS, NodeReading
from clustertwin.telemetry.ingest.exposition_parser import parse
from clustertwin.telemetry.ingest.metrics_page import PageReader
from clustertwin.telemetry.ingest.rates import RateStream
from clustertwin.telemetry.ingest.sources.exporter_protocol import ExporterSession
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.http_sweep import unpack
from clustertwin.telemetry.ingest.sources.query_answer import AnswerLimits, parse_answer
from clustertwin.telemetry.ingest.sources.ring_blocks import RingReader, parse_ring
from clustertwin.telemetry.learning.champions.champion_store import parse_champion

RING = (
    b"t 1731700000.123\ncpu0 4705 150 1120 16250 520 0 17 0 0 0\ncpu1 4705 150 1120 16250 520 0 17 0 0 0\n"
    b"twin_memory_available_bytes 8589934592\njob slurm 4711 0-1\n"
    b"t 1731700001.123\ncpu0 4706 150 1120 16350 520 0 17 0 0 0\ncpu1 4706 150 1120 16350 520 0 17 0 0 0\n"
)
PAGE = (
    b'# HELP twin_cpu_seconds_total Seconds.\n# TYPE twin_cpu_seconds_total counter\ntwin_node_info{node="n1"} 1\n'
    b'twin_cpu_seconds_total{cpu="0",mode="user"} 4705e-2\ntwin_cpu_seconds_total{cpu="0",mode="idle"} 16250e-2\n'
    b'twin_job_cpu_allocated{jobid="7",cpu="0"} 1\ntwin_memory_total_bytes 8589934592\n'
)
ANSWER = (
    b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"instance":"n1:9752","cpu":"0","mode":'
    b'"user"},"values":[[1731700000.123,"1.5"],[1731700001.123,"2.5"]]},{"metric":{"cpu":"1"},"values":[]}]}}'
)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
CHAMPION = b'{"version": "ae-1", "sha256": "ab", "fence": 1, "since_s": 5.0, "why": "won", "before": ["b"], "base": ""}'

#: Pieces that have broken parsers, ours or others'.
NASTY = st.sampled_from(
    [b"9" * 25, b"9" * 400, b"-1", b"-5", b"1_0", b"0x5", b"1e999", b"-1e999", b"NaN", b"nan", b"Inf", b"null", b"true",
     b"\x00", b"\xff\xfe", b"\xed\xa0\x80", "٣".encode(), b"\\ud800", b"\n", b"\r\n", b"\r\n\r\n", b"\nt ", b"\ncpu",
     b"cpu", b"\njob ", b"job slurm j 0-65535\n", b" ", b"{", b"}", b"[", b"]", b"]]}", b'"', b"\\", b",", b";",
     b'{"metric":{', b'"values":[', b"[]," * 50, b"[" * 1100, b"#", b"# {", b"0\r\n\r\n", b"99999999\r\n", b"n" * 300]
)  # fmt: skip


def damaged(*seeds: bytes) -> st.SearchStrategy[bytes]:
    """A valid text with a few pieces cut out, repeated, or replaced by others; and bytes without any order."""
    edit = st.tuples(st.integers(0, 400), st.integers(0, 30), st.one_of(NASTY, st.binary(max_size=8), st.just(b"")))

    def apply(seed: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
        for at, length, piece in edits:
            at %= len(seed) + 1
            seed = seed[:at] + piece + seed[at + length :]
        return seed

    shuffled = st.builds(apply, st.sampled_from(seeds), st.lists(edit, min_size=1, max_size=6))
    return st.one_of(shuffled, shuffled, shuffled, st.binary(max_size=200))


def is_sound(reading: NodeReading) -> None:
    assert reading.seconds.shape == (len(reading.cpus), len(reading.modes))
    assert list(reading.cpus) == sorted(set(reading.cpus))
    assert len(reading.node) <= NAME_CHARS
    assert all(len(job.job) <= NAME_CHARS and len(job.cpus) <= MAX_CPU for job in reading.jobs)


def attempt(work: Callable[[], object], *errors: type[Exception]) -> object:
    try:
        return work()
    except errors:
        return None


@given(damaged(RING), damaged(RING))
@example(RING.replace(b"4705", b"9" * 400), RING)
@example(RING.replace(b"4705", b"9" * 5000), RING)
@example(RING.replace(b"0-1", b"0-65535"), RING)
def test_the_ring_of_an_exporter(first: bytes, second: bytes) -> None:
    reader, stream = RingReader("n1", "http://n1/ring"), RateStream()
    for text in (first, second, RING):
        for reading in attempt(lambda text=text: reader.read(text), SourceError) or []:
            is_sound(reading)
            trace = stream.push(reading)
            if trace is not None:
                assert trace.values.shape[:2] == trace.valid.shape
                assert np.isfinite(trace.values[trace.valid]).all()
    assert len(parse_ring(RING, "n1", "ring")) == 2  # one damaged text leaves nothing behind


@given(damaged(PAGE), damaged(PAGE))
@example(PAGE.replace(b"4705e-2", b"9" * 400), PAGE)
@example(PAGE.replace(b'node="n1"', b'node="' + b"n" * 9000 + b'"'), PAGE)
def test_the_page_of_an_exporter(first: bytes, second: bytes) -> None:
    attempt(lambda: parse(first), ExpositionError)
    reader = PageReader("", "http://n1/metrics")
    for text in (first, second):
        reading = attempt(lambda text=text: reader.read(text, 5.0), ExpositionError)
        if reading is not None:
            is_sound(reading)
    session = ExporterSession(Endpoint("http://n1:9752"))
    session.next_request(5.0)
    attempt(lambda: session.receive(second), SourceError)


@given(damaged(ANSWER), st.booleans())
@example(ANSWER.replace(b'"1.5"', b'"1.5",2'), True)
@example(ANSWER.replace(b"1731700000.123", b"1" * 400), True)
@example(ANSWER.replace(b'"0"', b'"\\ud800"'), True)
def test_the_answer_of_prometheus(body: bytes, cut: bool) -> None:
    limits = AnswerLimits(whole_bytes=0) if cut else AnswerLimits()
    for series in attempt(lambda: parse_answer(body, "http://p", "q", limits), SourceError) or []:
        assert series.times_s.shape == series.values.shape
        assert all(isinstance(text, str) for text in series.labels.values())


@given(damaged(CHUNKED, PLAIN), st.booleans())
@example(CHUNKED.replace(b"5\r\n", b"-5\r\n"), False)
@example(CHUNKED.replace(b"5\r\n", b"-9\r\n", 1), True)
def test_the_framing_of_a_response(received: bytes, ended: bool) -> None:
    unpacked = attempt(lambda: unpack(bytearray(received), ended), ValueError)
    if unpacked is not None:
        status, body, _ = unpacked
        assert 0 <= status <= 999
        assert len(body) <= len(received)


@given(st.one_of(st.text("0123456789-,\n x", max_size=60), st.text(max_size=20)))
@example("0-65535,0-65535")
@example("0-99999999999999999999")
def test_a_list_of_cpus(text: str) -> None:
    cpus = attempt(lambda: parse_cpulist(text, 512), InputError)
    assert cpus is None or all(0 <= cpu < 512 for cpu in cpus)


@given(damaged(CHAMPION))
@example(b"\xff\xfe\x00")
@example(b"[" * 100_000)
@example(CHAMPION.replace(b"ae-1", b"\\ud800"))
def test_the_file_that_names_the_champion(text: bytes) -> None:
    champion = attempt(lambda: parse_champion(text), InputError)
    if champion is not None:
        for name in (champion.version, champion.sha256, champion.why, champion.base, *champion.before):
            name.encode()
