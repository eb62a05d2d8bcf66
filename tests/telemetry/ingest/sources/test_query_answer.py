"""The answer of Prometheus, cut into rows: the same series as from the whole document, within its limits."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import Any

import numpy as np
import pytest

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.ingest.sources.query_answer import AnswerLimits, parse_answer

HEAD = b'{"status":"success","data":{"resultType":"matrix","result":['
CUT = AnswerLimits(whole_bytes=0)  # every answer is cut into rows


def answer(*rows: dict[str, Any]) -> bytes:
    document = {"status": "success", "data": {"resultType": "matrix", "result": rows}, "warnings": ["slow ]]}"]}
    return json.dumps(document, separators=(",", ":")).encode()


@pytest.mark.parametrize("name", ["n1", '{"metric":{', ']]}"values":[[', '\\"', "é"])
def test_rows_are_cut_where_they_end(name: str) -> None:
    rows = [{"metric": {"cpu": str(i), "node": name}, "values": [[5, "1"], [6.5, str(i)]]} for i in range(3)]
    rows.append({"metric": {"node": name}, "values": []})
    series = parse_answer(answer(*rows), "http://p", "q", CUT)
    assert [one.labels for one in series] == [row["metric"] for row in rows]
    assert [one.values.tolist() for one in series] == [[1, 0], [1, 1], [1, 2], []]
    assert np.array_equal(series[0].times_s, [5, 6.5])


def test_an_instance_with_more_series_than_a_node_has_is_left_out_and_the_others_are_kept() -> None:
    rows = [{"metric": {"instance": "liar", "cpu": str(i)}, "values": [[5, "1"]]} for i in range(50)]
    rows.append({"metric": {"instance": "good", "cpu": "0"}, "values": [[5, "1"]]})
    refused: dict[str, str] = {}
    limits = AnswerLimits(whole_bytes=0, instance_series=10)
    series = parse_answer(answer(*rows), "http://p", "q", limits, refused)
    assert [one.labels["instance"] for one in series] == ["liar"] * 10 + ["good"]
    assert refused == {"liar": "http://p: liar: more than 10 series, which is the limit"}
    with pytest.raises(SourceError, match="more than 10 series"):
        parse_answer(answer(*rows), "http://p", "q", limits)


def test_an_answer_with_more_instances_than_a_service_can_watch_is_refused() -> None:
    rows = [{"metric": {"instance": str(i)}, "values": [[5, "1"]]} for i in range(6)]
    with pytest.raises(SourceError, match="more than 5 instances"):
        parse_answer(answer(*rows), "http://p", "q", AnswerLimits(whole_bytes=0, instances=5))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (HEAD + b"[]," * 2_000_000 + b"[]]}}", "bytes without a series; the limit is"),
        (HEAD + b'{"metric":{},"values":[' + b"[]," * 2_000_000 + b"[]]}]}}", "bytes in one series; the limit is"),
        (HEAD + b'{"metric":{},"values":[[1,"1"]]}' + b"]}," + b"[]," * 2_000_000, "bytes around the series"),
        (HEAD + b'{"metric":{' * 200_000, "http://p: "),
        (HEAD + b'{"metric":{"instance":"' + b"n" * 3_000_000 + b'"},"values":[[1,"1"]]}]}}', "bytes in one series"),
    ],
    ids=["lists", "samples", "tail", "heads", "name"],
)
def test_an_answer_without_measure_is_refused_before_it_takes_memory(body: bytes, reason: str) -> None:
    tracemalloc.start()
    with pytest.raises(SourceError, match=reason):
        parse_answer(body, "http://p", "q")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize(
    "row",
    [
        b'{"metric":{"a":"\\ud800"},"values":[[1,"1"]]}',
        b'{"metric":{},"values":[[NaN,"1"]]}',
        b'{"metric":{},"values":[[1,"1",2]]}',
        b'{"metric":{"a":5},"values":[[1,"1"]]}',
        b'{"metric":{},"values":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=["surrogate", "nan", "three", "number", "nested"],
)
@pytest.mark.parametrize("limits", [CUT, AnswerLimits()], ids=["cut", "whole"])
def test_a_row_that_is_no_series_is_refused(row: bytes, limits: AnswerLimits) -> None:
    with pytest.raises(SourceError, match="http://p"):
        parse_answer(HEAD + row + b"]}}", "http://p", "q", limits)


def test_a_node_name_without_measure_is_refused(server: Any) -> None:
    row = {"metric": {"instance": "n" * 3000, "cpu": "0", "mode": "user"}, "values": [[10, "1"]]}
    for rows in ([row], []):
        server.say(answer(*rows).decode())
    with pytest.raises(SourceError, match="the name of a node has 3000 characters; the limit is 255"):
        Prometheus(Endpoint(server.url), dialect="node").counters(0, 100)


def test_series_that_share_no_time_are_refused_before_their_table_is_built(server: Any) -> None:
    rows = []
    for cpu in range(1000):
        values = [[cpu / 100 + k / 10_000, "1"] for k in range(9)]
        rows.append({"metric": {"instance": "n", "cpu": str(cpu), "mode": "user"}, "values": values})
    for part in (rows, []):
        server.say(answer(*part).decode())
    with pytest.raises(SourceError, match="its 1000 series have 9000 different times"):
        Prometheus(Endpoint(server.url), dialect="node").counters(0, 100)


def sending(body: bytes, encoding: str) -> Any:
    def send(request: Any) -> None:
        request.send_response(200)
        request.send_header("Content-Encoding", encoding)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return send


def test_one_layer_of_gzip_is_read(server: Any) -> None:
    server.answers.append(sending(gzip.compress(b"hello" * 1000), "gzip"))
    assert HttpClient(Endpoint(server.url)).get("/") == b"hello" * 1000


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,gzip,gzip", "br", "deflate, gzip"])
def test_a_second_layer_of_compression_is_refused(server: Any, encoding: str) -> None:
    server.answers.append(sending(gzip.compress(gzip.compress(b"0" * 1000)), encoding))
    with pytest.raises(SourceError, match="only one layer of gzip is accepted"):
        HttpClient(Endpoint(server.url)).get("/")


@pytest.mark.medium
def test_a_bomb_is_refused_at_the_limit_and_takes_no_more_memory(server: Any) -> None:
    server.answers.append(sending(gzip.compress(bytes(1 << 28)), "gzip"))
    tracemalloc.start()
    with pytest.raises(SourceError, match="more than 4194304 bytes"):
        HttpClient(Endpoint(server.url, most_bytes=4 << 20)).get("/")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


CUT_OFF = gzip.compress(b"x" * 99, mtime=0)[:-9]


@pytest.mark.parametrize(("body", "reason"), [(b"hello", "not gzip"), (CUT_OFF, "cut off")], ids=["text", "cut"])
def test_gzip_that_is_none_is_refused(server: Any, body: bytes, reason: str) -> None:
    server.answers.append(sending(body, "gzip"))
    with pytest.raises(SourceError, match=reason):
        HttpClient(Endpoint(server.url)).get("/")
