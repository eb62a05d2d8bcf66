"""Archived traces: from a recording that is still being written, and from a real Prometheus."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.servers import node_exporter, prometheus

from clustertwin.core.channels import CPU
from clustertwin.core.errors import RecordingError, SourceError
from clustertwin.core.traces import Trace
from clustertwin.service.store.trace_archive import PrometheusPast, RecordedPast
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.recording import Recorder


def test_a_recording_that_is_still_written_has_its_newest_seconds(tmp_path):
    past = RecordedPast(tmp_path / "recording")
    with pytest.raises(RecordingError):
        past.traces(["n1"], 0, 10)
    values = np.zeros((2, 30, 4), np.float32)
    values[..., 3] = 1
    with Recorder.create(tmp_path / "recording", {"n1": (0, 1)}) as recorder:
        recorder.append(Trace("n1", (0, 1), 1_000_000, CPU, values, np.ones((2, 30), np.bool_)))
        (trace,) = past.traces(["n1", "n9"], 999_990, 1_000_030)
        assert trace.valid.sum(1).tolist() == [30, 30]
        assert not trace.valid[:, :10].any()


@pytest.mark.real
@pytest.mark.slow
def test_prometheus_is_queried_for_one_node_by_its_name_or_its_host(tmp_path):
    with (
        node_exporter(tmp_path / "a") as a,
        node_exporter(tmp_path / "b") as b,
        prometheus(tmp_path / "prometheus", {"node": [a.address, b.address]}) as server,
    ):
        past = PrometheusPast(Endpoint(server.url), 'job="node"')
        deadline, traces = time.monotonic() + 20, []
        while time.monotonic() < deadline and not (traces and traces[0].valid.sum() > 3):
            time.sleep(1)
            now_s = int(time.time())
            # Both exporters report the name of this host, so each node is named for its address.
            traces = past.traces([a.address], now_s - 10, now_s)
        assert [trace.node for trace in traces] == [a.address]
        assert traces[0].valid.any()
        assert past.traces(['x"} or up{job="node', "nobody"], now_s - 10, now_s) == []
    with pytest.raises(SourceError):
        PrometheusPast(Endpoint(server.url, tries=1)).traces(["n1"], now_s - 10, now_s)
