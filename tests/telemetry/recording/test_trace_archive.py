"""Past telemetry from recordings, from one that is still being written, from memory and from a real Prometheus."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.servers import node_exporter, prometheus

from clustertwin.core.channels import CPU
from clustertwin.core.errors import Overloaded, RecordingError, SettingsError, SourceError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.ingest.counters import Counters
from clustertwin.telemetry.ingest.dialects import DIALECTS
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.recording import Recorder
from clustertwin.telemetry.recording.trace_archive import (
    GrowingRecordingArchive,
    MemoryArchive,
    PrometheusArchive,
    RecordingArchive,
)

START_S = 1_000_000
JOB = JobSpan("17", "n1", (0,), START_S, START_S + 20)


def idle(node: str = "n1", seconds: int = 30, valid: int | None = None) -> Trace:
    values = np.zeros((2, seconds, 4), np.float32)
    values[..., 3] = 1
    mask = np.tile(np.arange(seconds) < (seconds if valid is None else valid), (2, 1))
    return Trace(node, (0, 1), START_S, CPU, values, mask)


def record(directory, *traces: Trace) -> None:
    with Recorder.create(directory, {trace.node: trace.cpus for trace in traces}) as recorder:
        for trace in traces:
            recorder.append(trace)
        recorder.label(JOB)


def test_a_recording_that_is_still_written_has_its_newest_seconds(tmp_path):
    archive = GrowingRecordingArchive(tmp_path / "recording")
    with pytest.raises(RecordingError):
        archive.traces(0, 10, ["n1"])
    with Recorder.create(tmp_path / "recording", {"n1": (0, 1)}) as recorder:
        recorder.append(idle())
        (trace,) = archive.traces(START_S - 10, START_S + 30, ["n1", "n9"])
        assert trace.valid.sum(1).tolist() == [30, 30]
        assert not trace.valid[:, :10].any()
        assert archive.extent_s(0, START_S + 9) == (START_S, START_S + 9)


def test_of_two_recordings_of_a_node_the_one_with_more_valid_seconds_is_used(tmp_path):
    record(tmp_path / "a", idle(valid=10), idle("n2"))
    record(tmp_path / "b", idle(valid=25))
    archive = RecordingArchive([tmp_path])
    traces = {trace.node: trace for trace in archive.traces(START_S, START_S + 30)}
    assert {node: int(trace.valid[0].sum()) for node, trace in traces.items()} == {"n1": 25, "n2": 30}
    assert [trace.node for trace in archive.traces(START_S, START_S + 30, ["n2", "n9"])] == ["n2"]
    assert archive.traces(START_S + 100, START_S + 200) == []
    assert archive.extent_s(0, 10) == (0, 0)


def test_a_job_is_found_in_the_recording_that_labels_it(tmp_path):
    record(tmp_path / "a", idle())
    for archive in (RecordingArchive([tmp_path]), GrowingRecordingArchive(tmp_path / "a")):
        assert archive.recording_with_job("17").directory == tmp_path / "a"
        assert archive.recording_with_job("18") is None


def test_a_directory_without_recordings_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match="no recordings below"):
        RecordingArchive([tmp_path])


def counted(node: str, apart_s: int) -> Counters:
    """The counters of an idle thread, scraped this seldom."""
    times_s = np.arange(START_S - 15.0, START_S + 46.0, apart_s)
    seconds = np.zeros((1, len(times_s), 2))
    seconds[0, :, 1] = times_s
    return Counters(node, (0,), times_s, seconds, ("user", "idle"))


def test_a_node_that_is_scraped_too_seldom_does_not_keep_a_night_from_the_others(monkeypatch):
    """Every night failed as long as Prometheus had one such node."""
    nodes = [counted("n1", 1), counted("n2", 15)]
    monkeypatch.setattr(Prometheus, "counters", lambda *_: nodes)
    archive = PrometheusArchive(Endpoint("http://prometheus:9090"))
    (trace,) = archive.traces(START_S, START_S + 30)
    assert (trace.node, trace.valid.sum()) == ("n1", 30)
    nodes.pop(0)
    with pytest.raises(SourceError, match="n2: samples are 15 s apart"):
        archive.traces(START_S, START_S + 30)


def test_traces_in_memory_are_cut_to_the_range():
    archive = MemoryArchive([idle(), idle("n2")])
    (trace,) = archive.traces(START_S - 5, START_S + 7, ["n2"])
    assert (trace.node, trace.start_s, trace.end_s, trace.valid.shape) == ("n2", START_S, START_S + 7, (2, 7))
    assert archive.extent_s(START_S + 5, START_S + 100) == (START_S + 5, START_S + 30)


@pytest.mark.real
@pytest.mark.slow
def test_prometheus_is_queried_for_one_node_by_its_own_name_or_by_its_host(tmp_path):
    with (
        node_exporter(tmp_path / "a") as a,
        node_exporter(tmp_path / "b") as b,
        prometheus(tmp_path / "prometheus", {"node": [a.address, b.address]}) as server,
    ):
        archive = PrometheusArchive(Endpoint(server.url), 'job="node"')
        deadline, traces = time.monotonic() + 90, []
        while time.monotonic() < deadline and not (traces and traces[0].valid.sum() > 3):
            time.sleep(1)
            now_s = int(time.time())
            # Both exporters report the name of this host, so each node is named by its address.
            traces = archive.traces(now_s - 10, now_s, [a.address])
        assert [trace.node for trace in traces] == [a.address]
        assert traces[0].valid.any()
        assert {trace.node for trace in archive.traces(now_s - 10, now_s)} == {a.address, b.address}
        assert archive.traces(now_s - 10, now_s, ['x"} or up{job="node', "nobody"]) == []
    with pytest.raises(SourceError):
        PrometheusArchive(Endpoint(server.url, tries=1)).traces(now_s - 10, now_s, ["n1"])


class QueriedServer:
    """Stands for the HTTP client: notes every query, and knows series by the name of a metric."""

    def __init__(self, monkeypatch, **answers: str) -> None:
        self.queries: list[str] = []

        def get(client, path, params):
            self.queries.append(params["query"])
            found = [text for metric, text in answers.items() if params["query"].startswith(metric + "{")]
            return f'{{"status":"success","data":{{"resultType":"matrix","result":[{",".join(found)}]}}}}'.encode()

        monkeypatch.setattr(HttpClient, "get", get)


def test_an_unknown_job_is_looked_for_in_short_pieces_and_given_up_in_time(monkeypatch):
    server, archive = QueriedServer(monkeypatch), PrometheusArchive(Endpoint("http://nowhere"))
    assert list(archive.job_traces("17", 1e9)) == []
    assert len(server.queries) == 24 * 3600 / 400
    with pytest.raises(Overloaded, match="did not answer all queries within -1 s"):
        list(archive.job_traces("17", 1e9, within_s=-1))
    assert len(server.queries) == 24 * 3600 / 400


def test_the_nodes_of_a_job_are_queried_one_after_the_other(monkeypatch):
    nodes = [f"n{i}:9100" for i in range(20)]
    samples = [
        f'{{"metric":{{"instance":"{node}","jobid":"17","cpu":"0"}},"values":[[999999990,"1"],[999999999,"1"]]}}'
        for node in nodes
    ]
    (metric,) = {dialect.job_cpu for dialect in DIALECTS.values() if dialect.job_cpu}
    QueriedServer(monkeypatch, **{metric: ",".join(samples)})
    archive = PrometheusArchive(Endpoint("http://nowhere"), 'cluster="a"')
    asked = []
    monkeypatch.setattr(archive, "_matching", lambda *query: asked.append(query) or [])
    assert list(archive.job_traces("17", 1e9)) == []
    assert [matchers for matchers, _, _ in asked] == [f'instance="{node}",cluster="a"' for node in sorted(nodes)]
    assert {end_s - start_s for _, start_s, end_s in asked} == {601}


def test_a_recording_that_grows_is_opened_again_after_a_while_and_not_for_each_piece(tmp_path):
    now_s = [0.0]
    archive = GrowingRecordingArchive(tmp_path / "r", lambda: now_s[0])
    record(tmp_path / "r", idle())
    assert len(archive.traces(START_S, START_S + 30)) == 1
    with Recorder.resume(tmp_path / "r") as recorder:
        recorder.admit("n2", (0, 1))
        recorder.append(idle("n2"))
        assert len(archive.traces(START_S, START_S + 30)) == 1
        now_s[0] = 10.0
        assert len(archive.traces(START_S, START_S + 30)) == 2
