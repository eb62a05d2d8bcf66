"""Parsers that meet the network, with damaged input: each returns a sound result or raises its own error."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from tests.hostile_inputs import attempt, boolean, damaged, fuzzed, seeds

from clustertwin.core.errors import ExpositionError, InputError, SourceError
from clustertwin.telemetry.exporter.jobs.cpuset import MAX_CPU, parse_cpulist
from clustertwin.telemetry.ingest.counters import NAME_CHARS, NodeReading
from clustertwin.telemetry.ingest.exposition_parser import parse
from clustertwin.telemetry.ingest.http_framing import unpack
from clustertwin.telemetry.ingest.metrics_page import PageReader
from clustertwin.telemetry.ingest.pushed.pushed_samples import PushedSamples
from clustertwin.telemetry.ingest.pushed.write_request import (
    WriteError,
    WriteLimits,
    declared_length,
    decode,
    parse_write_request,
)
from clustertwin.telemetry.ingest.rates import RateStream
from clustertwin.telemetry.ingest.sources.exporter_protocol import ExporterSession
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.query_answer import AnswerLimits, parse_answer
from clustertwin.telemetry.ingest.sources.ring_blocks import RingReader
from clustertwin.telemetry.learning.champions.champion_store import parse_champion

RING, PAGE = seeds("exporter_ring")[0], seeds("exporter_page")[0]
PUSHED, PUSHED_S = seeds("write_request")[0], 1_700_000_000.0


def is_sound(reading: NodeReading) -> None:
    assert reading.seconds.shape == (len(reading.cpus), len(reading.modes))
    assert list(reading.cpus) == sorted(set(reading.cpus))
    assert len(reading.node) <= NAME_CHARS
    assert all(len(job.job) <= NAME_CHARS and len(job.cpus) <= MAX_CPU for job in reading.jobs)


@fuzzed("exporter_ring", damaged(*seeds("exporter_ring")), values=(RING,))
def test_the_ring_of_an_exporter(first: bytes, second: bytes) -> None:
    reader, stream = RingReader("n1", "http://n1/ring"), RateStream()
    for text in (first, second, RING):
        for reading in attempt(lambda text=text: reader.read(text), SourceError) or []:
            is_sound(reading)
            trace = stream.push(reading)
            if trace is not None:
                assert trace.values.shape[:2] == trace.valid.shape
                assert np.isfinite(trace.values[trace.valid]).all()
                for channels in filter(None, (trace.node_channels, trace.job_channels)):
                    known = channels.values[~np.isnan(channels.values)]
                    assert ((known >= 0) & (known <= 1)).all()
    assert len(RingReader("n1", "ring").read(RING)) == 2  # one damaged text leaves nothing behind


@fuzzed("exporter_page", damaged(PAGE), values=(PAGE,))
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


@fuzzed("prometheus_answer", boolean, values=(True,))
def test_the_answer_of_prometheus(body: bytes, cut: bool) -> None:
    limits = AnswerLimits(whole_bytes=0) if cut else AnswerLimits()
    for series in attempt(lambda: parse_answer(body, "http://p", "q", limits), SourceError) or []:
        assert series.times_s.shape == series.values.shape
        assert all(isinstance(text, str) for text in series.labels.values())


@fuzzed("write_request", damaged(*seeds("write_request")), values=(PUSHED,))
def test_a_request_of_remote_write(first: bytes, second: bytes) -> None:
    pushed = PushedSamples()
    for number, data in enumerate((first, second, PUSHED)):
        request = attempt(lambda data=data: parse_write_request(data), WriteError)
        if request is not None:
            assert request.places.max(initial=0) <= len(data)
            pushed.add("site", request, PUSHED_S + number)
    for _, reading in pushed.due(PUSHED_S + 20):
        is_sound(reading)


@pytest.mark.skipif(find_spec("cramjam") is None, reason="pip install 'clustertwin[remote-write]'")
@fuzzed("snappy_block")
def test_a_snappy_block(body: bytes) -> None:
    limits = WriteLimits(decoded_bytes=1 << 16)
    decoded = attempt(lambda: decode(body, limits), WriteError)
    assert decoded is None or len(decoded) == declared_length(body, limits) <= 1 << 16


@fuzzed("http_response", boolean, values=(False,))
def test_the_framing_of_a_response(received: bytes, ended: bool) -> None:
    unpacked = attempt(lambda: unpack(bytearray(received), ended), ValueError)
    if unpacked is not None:
        status, body, _ = unpacked
        assert 0 <= status <= 999
        assert len(body) <= len(received)


@fuzzed("cpu_list")
def test_a_list_of_cpus(text: bytes) -> None:
    cpus = attempt(lambda: parse_cpulist(text.decode(errors="replace"), 512), InputError)
    assert cpus is None or all(0 <= cpu < 512 for cpu in cpus)


@fuzzed("champion")
def test_the_file_that_names_the_champion(text: bytes) -> None:
    champion = attempt(lambda: parse_champion(text), InputError)
    if champion is not None:
        for name in (champion.version, champion.sha256, champion.why, champion.base, *champion.before):
            name.encode()
