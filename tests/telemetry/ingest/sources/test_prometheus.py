"""The JSON of Prometheus: known answers, nodes and jobs, and invalid results."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clustertwin.core.channels import NODE
from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.ingest.metrics_page import MOST_JOBS
from clustertwin.telemetry.ingest.sources import traces
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.ingest.sources.query_answer import AnswerLimits


def matrix(*rows: tuple[dict[str, str], list[tuple[float, Any]]]) -> str:
    result = [{"metric": labels, "values": [[t, str(v)] for t, v in values]} for labels, values in rows]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def thread(instance: str, cpu: str, mode: str, values: list[tuple[float, Any]]) -> tuple[dict[str, str], Any]:
    return {"instance": instance, "job": "node", "cpu": cpu, "mode": mode}, values


def source(server: Any, **settings: Any) -> Prometheus:
    return Prometheus(Endpoint(server.url, backoff_s=0.001), **settings)


def test_counters_are_raw_samples_by_node_thread_and_mode(server: Any) -> None:
    server.say(
        matrix(
            thread("b:1", "1", "user", [(10.5, 1), (11.5, 1.5)]),
            thread("b:1", "0", "user", [(10.5, 3), (11.5, 4)]),
            thread("b:1", "0", "idle", [(10.5, 5), (11.5, 5)]),
            thread("a:1", "0", "user", [(10.25, 7), (11.25, "NaN")]),
        )
    )
    server.say(matrix(({"instance": "a:1", "node": "alpha"}, [(11, 1)])))  # twin_node_info
    server.say(matrix(({"instance": "b:1", "jobid": "17", "cpu": "1"}, [(11.5, 1)])))  # twin_job_cpu_allocated
    alpha, b = source(server).counters(10, 12)
    assert (alpha.node, alpha.cpus, alpha.modes) == ("alpha", (0,), ("user",))
    assert (b.node, b.cpus, b.modes) == ("b", (0, 1), ("user", "idle"))
    np.testing.assert_array_equal(alpha.seconds, [[[7], [np.nan]]])
    np.testing.assert_array_equal(b.seconds, [[[3, 5], [4, 5]], [[1, np.nan], [1.5, np.nan]]])
    np.testing.assert_array_equal(b.times_s, [10.5, 11.5])
    assert b.spans == (JobSpan("17", "b", (1,), 11.5, 11.5),)
    assert "query=twin_cpu_seconds_total%7B%7D%5B3000ms%5D" in server.requests[0][0]


def test_a_site_with_only_node_exporter_is_read_too(server: Any) -> None:
    server.say(matrix())
    server.say(matrix(thread("n1:9100", "0", "user", [(10, 1), (11, 2)])))
    server.say(matrix(({"instance": "n1:9100", "nodename": "n1.site"}, [(11, 1)])))
    (counters,) = source(server).counters(10, 12)
    assert counters.node == "n1.site"
    assert "node_cpu_seconds_total" in server.requests[1][0]


def test_two_targets_with_one_name_keep_their_addresses(server: Any) -> None:
    server.say(matrix(thread("n1:1", "0", "user", [(10, 1)]), thread("n1:2", "0", "user", [(10, 1)])))
    server.say(matrix())
    assert [c.node for c in source(server, dialect="node").counters(10, 12)] == ["n1:1", "n1:2"]


def test_node_channels_are_read_with_one_query(server: Any) -> None:
    server.say(matrix(thread("n1:1", "0", "user", [(10, 1), (11, 2)])))
    server.say(matrix())  # the name
    total, available, waiting = (
        {"instance": "n1:1", "__name__": name}
        for name in (
            "node_memory_MemTotal_bytes",
            "node_memory_MemAvailable_bytes",
            "node_pressure_io_waiting_seconds_total",
        )
    )
    elsewhere = {**total, "instance": "n2:1"}
    server.say(
        matrix(
            (total, [(10, 1000), (11, 1000)]),
            (elsewhere, [(10, 1), (11, 1)]),
            (available, [(10, 250), (11, 500)]),
            (waiting, [(11, 0.5)]),
        )
    )
    (counters,) = source(server, dialect="node", node_channels=True).counters(10, 12)
    assert counters.operands is not None
    np.testing.assert_array_equal(counters.operands[:, NODE.index("memory_used")], [[250, 1000], [500, 1000]])
    np.testing.assert_array_equal(counters.operands[:, NODE.index("io_pressure"), 0], [np.nan, 0.5])
    assert np.isnan(counters.operands[:, NODE.index("cpu_pressure")]).all()
    assert "__name__%3D~%22node_" in server.requests[-1][0]
    assert "%7Cnode_memory_MemAvailable_bytes%7C" in server.requests[-1][0]


def test_matchers_are_in_every_query(server: Any) -> None:
    server.say(matrix())
    with pytest.raises(SourceError, match='no node_cpu_seconds_total with cluster="a" between 10 and 12'):
        source(server, dialect="node", matchers='cluster="a"').counters(10, 12)
    assert "%7Bcluster%3D%22a%22%7D" in server.requests[0][0]


def test_modes_that_stay_zero_can_be_left_out(server: Any) -> None:
    """`source.match` can leave them out, and Prometheus finds fewer series."""
    used = [
        thread("n:1", "0", mode, [(t, t * share) for t in range(10, 15)])
        for mode, share in (("user", 0.25), ("idle", 0.75))
    ]
    zero = [thread("n:1", "0", mode, [(t, 0) for t in range(10, 15)]) for mode in ("irq", "steal")]
    for rows in ([*used, *zero], used):
        server.say(matrix(*rows))
        server.say(matrix())  # the name
    every, fewer = (traces(source(server, dialect="node", matchers=m), 11, 14)[0][0] for m in ("", 'mode!~"irq|steal"'))
    assert every.valid.all()
    np.testing.assert_array_equal(every.values, fewer.values)
    np.testing.assert_array_equal(every.valid, fewer.valid)


def test_a_long_range_is_queried_in_pieces_without_doubling(server: Any) -> None:
    every = [(float(t), t) for t in range(1001)]  # the server gives more than it was asked for
    server.say(matrix(thread("n1:1", "0", "user", every)))
    (series,) = source(server).raw("x", 0, 1000)
    np.testing.assert_array_equal(series.times_s, np.arange(1001))
    assert len(server.requests) == 3


@pytest.mark.medium
@pytest.mark.parametrize(
    ("claims", "names"),
    [
        ({"a:1": "v", "v:1": "v", "z:1": "v:1"}, ["a:1", "v:1", "z:1"]),  # two names, to get at the address of v
        ({"a:1": "v:1", "v:1": "vic"}, ["a:1", "vic"]),
        ({"a:1": "n\u202e", "v:1": "n\\u202e"}, ["a:1", "v:1"]),  # they look the same
    ],
)
def test_no_node_can_take_the_name_of_another(server: Any, claims: dict[str, str], names: list[str]) -> None:
    """Two nodes of one name were mixed: the values of the liar stood in the trace of the victim."""
    server.say(matrix(*(thread(instance, "0", "user", [(10, 1), (11, 2)]) for instance in claims)))
    server.say(matrix(*(({"instance": instance, "node": name}, [(11, 1)]) for instance, name in claims.items())))
    server.say(matrix())
    assert [counters.node for counters in source(server).counters(10, 12)] == names


@pytest.mark.medium
def test_a_node_that_claims_a_held_name_is_refused_and_the_holder_keeps_it(server: Any) -> None:
    """Both fell back to their addresses, so a liar could make any node begin anew under another name."""
    history = source(server)

    def ask(end_s: float, **claims: str) -> list[str]:
        server.answers.clear()
        server.say(matrix(*(thread(f"{host}:1", "0", "user", [(end_s - 1, 1), (end_s, 2)]) for host in claims)))
        server.say(matrix(*(({"instance": f"{host}:1", "node": name}, [(end_s, 1)]) for host, name in claims.items())))
        server.say(matrix())
        return [counters.node for counters in history.counters(end_s - 2, end_s)]

    assert ask(12, a="n1") == ["n1"]
    assert ask(14, a="n1", b="n1") == ["n1"]
    assert "b:1: says that it is n1, but a:1 has that name; its data is refused" in history.refused["b:1"]
    assert ask(200, b="n2", c="n3") == ["n2", "n3"]  # the holder may be away for a while
    with pytest.raises(SourceError, match="a:1 has that name"):
        ask(300, b="n1")
    assert ask(320, b="n1") == ["n1"]


def compact(document: str) -> str:
    """As Prometheus writes it. A long answer that is written otherwise is not read."""
    return json.dumps(json.loads(document), separators=(",", ":"))


def vector(**counts: int) -> str:
    result = [{"metric": {"instance": f"{host}:1"}, "value": [12, str(count)]} for host, count in counts.items()]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def test_one_node_with_very_many_series_does_not_hide_the_others(server: Any) -> None:
    """The limit of series is for all nodes together, so a million series of one node hid all of them."""
    good = thread("good:1", "0", "user", [(10, 1), (11, 2)])
    server.say(compact(matrix(good, *(thread("liar:1", str(i), "user", [(10, 1)]) for i in range(30)))))
    server.say(vector(liar=30, good=1))
    server.say(matrix(good))
    server.say(matrix())
    limits = AnswerLimits(series=20, instance_series=10, whole_bytes=500)
    history = source(server, dialect="node", matchers='cluster="a"', limits=limits)
    assert [counters.node for counters in history.counters(10, 12)] == ["good"]
    queries = [parse_qs(urlsplit(path).query)["query"][0] for path, _ in server.requests]
    assert queries[1] == 'topk(20, count by (instance) (node_cpu_seconds_total{cluster="a"}))'
    assert queries[2].startswith('node_cpu_seconds_total{instance!="liar:1",cluster="a"}')
    assert "liar:1: more than 10 series of one metric" in history.refused["liar:1"]
    server.answers.clear()
    server.say(matrix(good))
    server.say(matrix())
    history.counters(10, 13)
    assert 'instance!="liar:1"' in parse_qs(urlsplit(server.requests[-1][0]).query)["query"][0]
    assert list(history.refused) == ["liar:1"]


def test_too_many_series_of_no_node_in_particular_are_an_error(server: Any) -> None:
    server.say(compact(matrix(*(thread(f"n{i}:1", "0", "user", [(10, 1)]) for i in range(30)))))
    server.say(vector(n0=1, n1=1))
    with pytest.raises(SourceError, match="30 series; the limit is 20"):
        source(server, dialect="node", limits=AnswerLimits(series=20, whole_bytes=500)).counters(10, 12)


def test_the_error_for_samples_too_far_apart_names_a_usable_interval(server: Any) -> None:
    server.say(matrix(thread("n1:1", "0", "user", [(t, t) for t in range(0, 300, 15)])))
    server.say(matrix())
    with pytest.raises(SourceError, match=r"n1: samples are 15 s apart, not 1: .* an interval of 15 s"):
        traces(source(server, dialect="node"), 0, 300)


LIES: dict[str, tuple[dict[str, str], str]] = {
    "no thread": ({"cpu": "zero"}, "cpu='zero' is not a hardware thread"),
    "a long label": ({"cpu": "0", "pod": "x" * 5000}, "5000 characters in a label; the limit is 4096"),
    "many labels": ({"cpu": "0", **{f"l{i}": "" for i in range(70)}}, "labels of a series; the limit is 64"),
}


@pytest.mark.parametrize("lie", LIES)
def test_one_node_that_lies_to_prometheus_does_not_hide_the_others(server: Any, lie: str) -> None:
    labels, reason = LIES[lie]
    liar = {"instance": "liar:1", "mode": "user", **labels}, [(10.0, 1), (11.0, 2)]
    server.say(matrix(liar, thread("good:1", "0", "user", [(10, 1), (11, 2)])))
    server.say(matrix())
    history = source(server, dialect="node")
    assert [counters.node for counters in history.counters(10, 12)] == ["good"]
    assert list(history.refused) == ["liar:1"]
    assert reason in history.refused["liar:1"]


def test_one_node_with_a_name_that_is_too_long_does_not_hide_the_others(server: Any) -> None:
    rows = [thread("liar:1", "0", "user", [(10, 1)]), thread("good:1", "0", "user", [(10, 1)])]
    server.say(matrix(*rows))
    server.say(matrix(({"instance": "liar:1", "nodename": "n" * 300}, [(10, 1)])))
    history = source(server, dialect="node")
    assert [counters.node for counters in history.counters(10, 12)] == ["good"]
    assert "liar:1: the name of a node has 300 characters" in history.refused["liar:1"]


@pytest.mark.parametrize("ends", [[], [(11, 0)]])
def test_one_node_with_too_many_jobs_does_not_hide_the_others(server: Any, ends: list[tuple[float, Any]]) -> None:
    """The loop had to go through a hundred thousand of them in every turn."""
    server.say(matrix(*(thread(node, "0", "user", [(10, 1), (11, 2)]) for node in ("liar:1", "good:1"))))
    server.say(matrix(({"instance": "liar:1", "node": "liar"}, [(10, 1)])))
    labels = ({"instance": "liar:1", "jobid": str(job), "cpu": "0"} for job in range(MOST_JOBS + 1))
    server.say(matrix(*((each, [(10, 1), *ends]) for each in labels)))
    history = source(server)
    assert [counters.node for counters in history.counters(10, 12)] == ["good"]
    assert f"{MOST_JOBS + 1} jobs; the limit is {MOST_JOBS}" in history.refused["liar:1"]


def test_one_node_that_is_scraped_rarely_is_left_out_and_named(server: Any) -> None:
    rare = thread("rare:1", "0", "user", [(t, t) for t in range(0, 300, 15)])
    often = thread("often:1", "0", "user", [(t, t) for t in range(300)])
    server.say(matrix(rare, often))
    server.say(matrix())
    refused: dict[str, str] = {}
    by_node, _ = traces(source(server, dialect="node"), 0, 300, refused=refused)
    assert [trace.node for trace in by_node] == ["often"]
    assert refused == {"rare": "rare: samples are 15 s apart, not 1: scrape more often, or use an interval of 15 s"}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<html>hello</html>", "does not answer like Prometheus"),
        ("[]", "does not answer like Prometheus"),
        ('{"status":"success"}', "does not answer like Prometheus"),
        ('{"status":"error","error":"too many samples"}', "too many samples"),
        ('{"status":"success","data":{"resultType":"vector","result":[]}}', "a vector, not raw samples"),
        ('{"status":"success","data":{"resultType":"matrix","result":[{"metric":{}}]}}', "not a series"),
        (matrix(({"cpu": "0"}, [(1, "much")])), "not a series"),
        (matrix(({"cpu": "zero", "mode": "user"}, [(10, 1)])), "cpu='zero' is not a hardware thread"),
    ],
)
def test_an_invalid_result_is_reported(server: Any, body: str, reason: str) -> None:
    server.say(body)
    with pytest.raises(SourceError, match=reason) as error:
        source(server).counters(10, 12)
    assert server.url in str(error.value)


# Rows that are almost right: each leaf may be of another kind.
leaves = st.sampled_from([None, True, 10.5, 11, "11.5", "NaN", "+Inf", "x", "", [], [1], {}, {"a": 1}, 1e300, -1])
almost_rows = st.fixed_dictionaries(
    {},
    optional={
        "metric": leaves | st.dictionaries(st.sampled_from(["cpu", "mode", "instance"]), leaves | st.just("0")),
        "values": leaves | st.lists(st.lists(leaves, min_size=1, max_size=3), max_size=3),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(leaves | st.lists(leaves | almost_rows, max_size=3))
def test_no_json_raises_anything_but_our_error(server: Any, result: Any) -> None:
    server.answers.clear()
    server.say(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    with suppress(SourceError):
        traces(source(server, node_channels=True), 10, 12, wide=True)


def test_the_error_for_an_unknown_dialect_lists_the_dialects(server: Any) -> None:
    with pytest.raises(SettingsError, match="no dialect 'x'; the dialects are twin, node"):
        source(server, dialect="x")
