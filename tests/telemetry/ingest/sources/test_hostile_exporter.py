"""A lying exporter: counters, chunks, jobs and names without measure are refused, and named with their limit."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.ingest.http_framing import MOST_CHUNKS, unpack
from clustertwin.telemetry.ingest.sources import ring_blocks
from clustertwin.telemetry.ingest.sources.exporter_protocol import ExporterSession
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.ring_blocks import MOST_JOB_THREADS, RingReader

BLOCK = b"t 1731700000.123\ncpu0 4705 150 1120 16250 520 0 17 0 0 0\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("digits", [21, 400, 5000])
def test_a_counter_of_many_digits_is_refused_with_the_source_and_the_limit(digits: int) -> None:
    lie = BLOCK.replace(b"4705", b"9" * digits)
    with pytest.raises(SourceError, match="http://n1/ring: a counter has more than 20 digits"):
        RingReader("n1", "http://n1/ring").read(lie)


def test_the_largest_count_of_a_kernel_is_read() -> None:
    (reading,) = RingReader("n1", "ring").read(BLOCK.replace(b"4705", b"18446744073709551615"))
    assert reading.seconds[0, 0] == 18446744073709551615 / 100


@pytest.mark.parametrize("size", [b"-5", b"-0", b"+5", b"1_0", b"0x5", b"", b"fffffffff", b" 5"])
def test_a_chunk_size_that_is_not_hexadecimal_digits_is_refused(size: bytes) -> None:
    with pytest.raises(ValueError, match="not the size of a chunk"):
        unpack(bytearray(CHUNKED + size + b"\r\nhello\r\n0\r\n\r\n"), False)


def test_a_body_in_very_many_chunks_is_refused() -> None:
    with pytest.raises(ValueError, match=f"more than {MOST_CHUNKS} chunks"):
        unpack(bytearray(CHUNKED + b"1\r\nx\r\n" * (MOST_CHUNKS + 1) + b"0\r\n\r\n"), False)


@pytest.mark.parametrize("second", [b"Content-Length: 7", b"Transfer-Encoding: chunked"])
def test_a_length_that_is_stated_twice_is_refused(second: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + second + b"\r\n\r\nok"
    with pytest.raises(ValueError, match="stated twice"):
        unpack(bytearray(head), False)


def test_jobs_may_only_list_threads_that_the_node_has() -> None:
    with pytest.raises(SourceError, match=r"ring: .*0-65535 is not a range of CPUs below 1"):
        RingReader("n1", "ring").read(BLOCK + b"".join(b"job slurm j%d 0-65535\n" % i for i in range(500)))


def test_all_jobs_together_may_list_only_so_many_threads() -> None:
    node = b"t 1.5\n" + b"".join(b"cpu%d 1 1 1 1\n" % cpu for cpu in range(512))
    lie = node + b"".join(b"job slurm j%d 0-511\n" % i for i in range(500))
    with pytest.raises(SourceError, match=f"the limit is {MOST_JOB_THREADS}"):
        RingReader("n1", "ring").read(lie)


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (BLOCK + b"job slurm j 0\n" * 1100, "lines of jobs in a block; the limit is 1024"),
        (BLOCK * 4097, "blocks; the limit is 4096"),
        (b"t 1\n" + b"".join(b"cpu%d 1 1 1 1\n" % cpu for cpu in range(8193)), "lines of threads in a block"),
        (BLOCK + b"job slurm " + b"j" * 300 + b" 0\n", "the name of a job has 300 characters; the limit is 255"),
        (BLOCK + b"job slurm j " + b"0," * 4000 + b"0\n", "more than a list of 1 threads"),
    ],
)
def test_each_limit_of_a_ring_is_named(lie: bytes, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        RingReader("n1", "http://n1/ring").read(lie)


def test_a_node_name_without_measure_is_refused() -> None:
    session = ExporterSession(Endpoint("http://n1:9752"))
    session.next_request(1.0)
    page = b'twin_node_info{node="%s"} 1\ntwin_cpu_seconds_total{cpu="0",mode="user"} 1\n' % (b"n" * 5000)
    with pytest.raises(SourceError, match="the name of a node has 5000 characters; the limit is 255"):
        session.receive(page)


def test_a_page_of_very_many_samples_is_refused_before_it_is_parsed() -> None:
    session = ExporterSession(Endpoint("http://n1:9752"))
    session.next_request(1.0)
    page = b"".join(b'twin_cpu_seconds_total{cpu="%d",mode="user"} 1\n' % i for i in range(300_000))
    with pytest.raises(SourceError, match="http://n1:9752/metrics: 300000 lines; the limit is 200000"):
        session.receive(page)


def test_pieces_that_end_like_a_response_are_not_read_again_and_again() -> None:
    """32 MB in such pieces took ten seconds of the loop: each piece read all chunks before it."""
    received, chunks, walked = bytearray(CHUNKED), [], []
    piece = b"14\r\n" + b"x" * 15 + b"0\r\n\r\n"  # the end of a response, as data
    for _ in range(50):
        received += piece
        assert unpack(received, False, chunks) is None
        received += b"\r\n"
        walked.append(len(chunks))
    assert walked == list(range(50))  # one more each time, and none twice
    received += b"0\r\n\r\n"
    assert unpack(received, False, chunks) == unpack(received, False) == (200, (b"x" * 15 + b"0\r\n\r\n") * 50, True)


def test_bad_samples_are_sorted_out_line_by_line_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a megabyte of lines that are no samples stopped the loop for a second, in every second."""
    parsed = []
    is_sample = ring_blocks._is_sample
    monkeypatch.setattr(ring_blocks, "_is_sample", lambda line: parsed.append(line) or is_sample(line))
    memory = b"twin_memory_total_bytes 100\ntwin_memory_available_bytes 25\n"
    lie = b"".join(BLOCK.replace(b"000.", b"%03d." % i) + memory + b"a b\n" * 998 for i in range(20))
    readings = RingReader("n1", "ring").read(lie)
    assert len(readings) == 20
    assert len(parsed) <= 2000
    assert not np.isnan(readings[0].operands).all()
    assert np.isnan(readings[-1].operands).all()
