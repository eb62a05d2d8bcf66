"""Channels of jobs and forecasts of memory from a live source to the snapshot, the recording, the API and the pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.service import sample_state as made
from tests.service.conftest import Clock

from clustertwin.core.channels import JOB
from clustertwin.core.traces import JobSpan
from clustertwin.service.live.feeds.live_feed import LiveFeed
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.telemetry.detection.forecast.memory_forecast import MemoryForecast
from clustertwin.telemetry.detection.questions.finding import SUSPECTED, Finding
from clustertwin.telemetry.ingest.counters import MODES, JobCpus, NodeReading
from clustertwin.telemetry.moments.moment import JobMoment, assemble
from clustertwin.telemetry.recording import Recording

START_S = 1_700_000_000
JOBS = (JobCpus("17", (0, 1)),)


class LeakingNode:
    """A node with two busy threads and a job on them that uses half of their time and loses a 300th of its memory a
    second."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.begin_s = clock, clock.now_s

    def readings(self) -> list[NodeReading]:
        now_s = self.clock.now_s
        since_s = now_s - self.begin_s
        seconds = np.zeros((2, len(MODES)))
        seconds[:, 0] = now_s
        job_operands = np.full((1, len(JOB), 2), np.nan)
        job_operands[0, JOB.index("job_cpu")] = since_s, 2
        job_operands[0, JOB.index("job_memory")] = 100 + 3 * since_s, 1000
        return [NodeReading("a", now_s, (0, 1), seconds, jobs=JOBS, job_operands=job_operands)]


@pytest.fixture
def watched(loop_of, state, clock, tmp_path: Path) -> Path:
    """A loop that has watched the node for four minutes and recorded it."""
    clock.now_s = START_S + 100.0
    feed = LiveFeed("test", [("a", LeakingNode(clock))], clock)
    loop = loop_of(feed, recorder=LiveRecorder(tmp_path / "recording", None))
    for _ in range(240):
        clock.now_s += 1
        loop.turn()
    loop._recorder.close()
    return tmp_path / "recording"


@pytest.mark.medium
def test_the_snapshot_has_the_channels_the_forecast_and_what_other_work_took(watched, state):
    moment = state.snapshot.moment
    channels = moment.job_channels
    assert channels.jobs == ("17",)
    np.testing.assert_allclose(channels.values[0, -100:, JOB.index("job_cpu")], 0.5)
    assert np.isnan(channels.values[0, :, JOB.index("job_throttled")]).all()
    (forecast,) = state.snapshot.memory_forecasts
    assert (forecast.node, forecast.job) == ("a", "17")
    used = 0.1 + 0.003 * 240
    assert forecast.earliest_s <= (1 - used) / 0.003 <= forecast.latest_s
    assert Recording.open(watched).trace("a").job_channels.jobs == ("17",)


def with_job(snapshot):
    """The snapshot made by hand; job 17 on n1 uses a quarter of its memory and will run out of it."""
    spans = [JobSpan("17", "n1", (0, 1), 9_000, made.NOW_S + 1)]
    threads = np.zeros((2, 300, 4), np.float32)
    threads[..., 0] = 0.8
    blocks = [(node, (0, 1), threads, np.ones((2, 300), np.bool_)) for node in ("n1", "n2")]
    values = np.full((1, 300, len(JOB)), np.nan, np.float32)
    values[0, :, JOB.index("job_memory")] = 0.25
    values[0, :, JOB.index("job_cpu")] = 0.4
    channels = JobMoment(JOB, ("17",), np.zeros(1, np.int32), values)
    moment = replace(assemble(made.NOW_S, snapshot.moment.schema, blocks, spans), job_channels=channels)
    forecast = MemoryForecast("n1", "17", made.NOW_S, 840, 540, 1500, 0.25, 1e-3, 600)
    since_s = made.NOW_S - 60
    suspect = Finding("change", SUSPECTED, "17", "n1", (0, 1), "progress", 0.0, 0.3, "own past", since_s, 6.0)
    return replace(snapshot, moment=moment, scored=moment, memory_forecasts=(forecast,), information=(suspect,))


@pytest.fixture
def client(app, stage, tmp_path):
    vars(stage).update(vars(made.state(tmp_path)))
    stage.publish(with_job(stage.snapshot), None)
    yield TestClient(app, base_url="http://127.0.0.1")
    stage.store.close()


def test_the_api_of_a_job_has_its_channels_other_work_and_forecast(client):
    answer = client.get("/api/v1/jobs/17").json()
    assert answer["job_channels"]["n1"]["job_memory"] == 0.25
    assert answer["job_channels"]["n1"]["job_throttled"] is None
    (work,) = answer["other_work"]
    assert work["taken"] == pytest.approx(0.5, abs=1e-3)
    (forecast,) = answer["memory_forecasts"]
    assert forecast["text"] == "out of memory in 14 min (9–25)"
    assert (forecast["remaining_s"], forecast["earliest_s"], forecast["latest_s"]) == (840, 540, 1500)


def test_the_api_of_a_node_and_the_snapshot_have_the_forecast(client):
    for path in ("/api/v1/nodes/n1", "/api/v1/snapshot"):
        (forecast,) = client.get(path).json()["memory_forecasts"]
        assert forecast["job"] == "17"
    assert client.get("/api/v1/nodes/n2").json()["memory_forecasts"] == []


def test_the_pages_of_the_job_and_of_its_node_show_the_forecast(client):
    for path in ("/jobs/17", "/nodes/n1"):
        assert "out of memory in 14 min (9–25)" in client.get(path).text
    assert "out of memory" not in client.get("/nodes/n2").text


def test_the_page_of_a_job_shows_its_channels_and_what_other_work_took(client):
    text = client.get("/jobs/17").text
    assert "memory of the job" in text
    assert "25.0 %" in text
    assert "other work used 50 % of the busy time" in text


def test_the_page_and_the_api_of_a_job_show_what_opens_no_event(client):
    text = "may be busy without progress: page faults and traffic 0 %, down from 30 %"
    assert text in client.get("/jobs/17").text
    (shown,) = client.get("/api/v1/jobs/17").json()["information"]
    assert (shown["cause"], shown["node"], shown["since_s"]) == (SUSPECTED, "n1", made.NOW_S - 60)
    assert shown["text"] == text
