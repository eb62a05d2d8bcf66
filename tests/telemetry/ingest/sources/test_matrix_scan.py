"""The compiled scan of a long answer: the same series as from a JSON parser, labels made once, and pieces that fit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.ingest.sources.http import AnswerTooLong, Endpoint
from clustertwin.telemetry.ingest.sources.matrix_scan import scan_rows
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.ingest.sources.query_answer import AnswerLimits, LabelReader, parse_answer, read_answer

CUT = AnswerLimits(whole_bytes=0)
numbers = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**12), max_value=10**12).map(str),
    st.sampled_from(["0", "-0.5", "9007199254740993", "0.1", "12345678.12345678", "1e+21", "+Inf", "-Inf", "NaN"]),
)
times = st.decimals(min_value=0, max_value=4 * 10**9, places=3, allow_nan=False).map(float)
rows = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=5), st.text(max_size=8)), st.lists(st.tuples(times, numbers))),
    min_size=1,
)


def document(found: list[tuple[dict[str, str], list[tuple[float, str]]]]) -> bytes:
    result = [{"metric": labels, "values": [list(sample) for sample in samples]} for labels, samples in found]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return json.dumps(answer, separators=(",", ":")).encode()


@pytest.mark.medium
@given(rows)
@settings(deadline=None)
def test_the_scan_reads_what_a_json_parser_reads(found: list[Any]) -> None:
    series = parse_answer(document(found), "http://p", "q", CUT)
    assert [one.labels for one in series] == [labels for labels, _ in found]
    for one, (_, samples) in zip(series, found, strict=True):
        np.testing.assert_array_equal(one.times_s, np.array([time_s for time_s, _ in samples]))
        np.testing.assert_array_equal(one.values, np.array([float(value) for _, value in samples]))


def test_the_usual_form_is_scanned_and_another_is_left_to_the_json_parser() -> None:
    body = document([({"cpu": "0"}, [(1.5, "2"), (2.5, "NaN")]), ({}, [])])
    first, end = body.find(b'{"metric":{'), body.rfind(b"]}}")
    scanned = scan_rows(body, first, end, 2)
    assert scanned is not None
    assert (scanned.first.tolist(), scanned.is_odd.tolist()) == ([0, 2, 2], [True, False])
    for wrong in (
        b'{"metric":{}, "values":[]}',
        b'{"metric":{},"values":[[1,"1",2]]}',
        b'{"metric":{},"values":[[1,1]]}',
    ):
        assert scan_rows(wrong + b"]}}", 0, len(wrong), 1) is None


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_row_that_is_cut_off_is_not_scanned(cut: int) -> None:
    row = b'{"metric":{"cpu":"0","mode":"user"},"values":[[1.5,"2.25"]]}'
    assert scan_rows(row[:cut] + b"]}}", 0, cut, 1) is None
    assert scan_rows(row[:cut], 0, cut - 1, 1) is None


def test_labels_are_read_again_only_if_they_differ() -> None:
    made: list[int] = []

    def make(labels: Any) -> list[Any]:
        made.append(len(labels))
        return list(labels)

    reader = LabelReader(make)
    for samples in ([(1.0, "1")], [(2.0, "2")]):
        bodies = document([({"cpu": "0"}, samples), ({"cpu": "1"}, samples)])
        answer = read_answer(bodies, "http://p", "q", reader, CUT)
        assert answer.labels == [{"cpu": "0"}, {"cpu": "1"}]
        assert answer.values.tolist() == [float(samples[0][1])] * 2
    assert made == [2]
    assert read_answer(document([({"cpu": "2"}, [])]), "http://p", "q", reader, CUT).labels == [{"cpu": "2"}]
    assert made == [2, 1]


def test_a_series_that_is_refused_is_named_again_when_its_labels_are_known() -> None:
    reader, body = LabelReader(list), document([({"instance": "liar", "pod": "x" * 5000}, [(1.0, "1")])])
    for _ in range(2):
        refused: dict[str, str] = {}
        assert read_answer(body, "http://p", "q", reader, CUT, refused).labels == [None]
        assert "5000 characters" in refused["liar"]


def test_a_range_whose_answer_is_too_long_is_read_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second is two samples of the node; answers of more than 40 s are refused."""
    source = Prometheus(Endpoint("http://p:9090"), dialect="node")
    asked: list[float] = []

    def get(path: str, params: dict[str, str]) -> bytes:
        range_s, end_s = float(params["query"].split("[")[1][:-3]) / 1000, float(params["time"])
        if "node_cpu_seconds_total" not in params["query"]:
            return document([])
        asked.append(range_s - 1)
        if range_s > 41:
            raise AnswerTooLong("too long")
        seconds = [s for s in range(101) if end_s - range_s <= s <= end_s]
        rows = [({"instance": "n", "cpu": cpu, "mode": "user"}, [(float(s), str(s)) for s in seconds]) for cpu in "01"]
        return document(rows)

    monkeypatch.setattr(source._http, "get", get)
    (counters,) = source.counters(0, 100)
    assert counters.times_s.tolist() == list(range(101))
    np.testing.assert_array_equal(counters.seconds[:, :, 0], [list(range(101))] * 2)
    assert asked == [100, 50, 25, 25, 25, 25]
    source.counters(0, 50)
    assert asked[6:] == [25, 25]  # it has learned the length


def test_an_answer_that_is_too_long_even_for_a_short_range_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Prometheus(Endpoint("http://p:9090"), dialect="node")

    def get(path: str, params: dict[str, str]) -> bytes:
        raise AnswerTooLong("http://p:9090: more than 9 bytes")

    monkeypatch.setattr(source._http, "get", get)
    with pytest.raises(SourceError, match="more than 9 bytes"):
        source.counters(0, 100)
