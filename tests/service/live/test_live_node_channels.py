"""Node channels from a live source to the snapshot, the recording, the API, the pages and the explanation."""

from __future__ import annotations

import base64
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.service import sample_state as made
from tests.service.conftest import Clock

from clustertwin.core.channels import NODE, SPREAD
from clustertwin.core.traces import NodeChannels
from clustertwin.service.live.feeds.live_feed import LiveFeed
from clustertwin.service.live.feeds.replay_feed import ReplayFeed
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.service.live.ray_scorer import Part
from clustertwin.service.store.event_store import Store
from clustertwin.service.terminal.local_board import board_of
from clustertwin.service.terminal.remote_board import heat_of
from clustertwin.telemetry.detection.events.explanation import NodeRatio
from clustertwin.telemetry.ingest.counters import MODES, NodeReading
from clustertwin.telemetry.ingest.rates import RateStream
from clustertwin.telemetry.recording import Recording

OLDER = Path(__file__).parents[2] / "telemetry/recording/of_older_versions"
START_S = 1_700_000_000


class Node:
    """A live source with two idle threads, half of its memory in use, and tasks that wait for I/O a tenth of a second.

    Its kernel does not measure CPU and memory pressure.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def readings(self) -> list[NodeReading]:
        now_s = self.clock.now_s
        operands = np.full((len(NODE), 2), np.nan)
        operands[NODE.index("memory_used")] = 500, 1000
        operands[NODE.index("io_pressure"), 0] = now_s / 10
        return [NodeReading("a", now_s, (0, 1), np.full((2, len(MODES)), now_s / len(MODES)), operands=operands)]


def run(loop, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        clock.now_s += 1
        loop.turn()


@pytest.fixture
def recorded(loop_of, state, clock, tmp_path):
    """A loop that has watched the node for twenty seconds and recorded it."""
    clock.now_s = START_S + 100.0
    loop = loop_of(LiveFeed("test", [("a", Node(clock))], clock), recorder=LiveRecorder(tmp_path / "recording", None))
    run(loop, clock, 20)
    loop._recorder.close()
    return tmp_path / "recording"


def test_the_snapshot_has_them_and_what_the_kernel_does_not_measure_is_unknown(recorded, state):
    channels = state.snapshot.moment.node_channels
    values = dict(zip(channels.schema.names, channels.values[0].T, strict=True))  # name -> (second,)
    assert np.isnan(values["memory_used"][:280]).all()
    np.testing.assert_allclose(values["memory_used"][-18:], 0.5)
    np.testing.assert_allclose(values["io_pressure"][-18:], 0.1, atol=1e-6)
    assert np.isnan(values["cpu_pressure"]).all()


def test_unknown_node_channels_hide_no_thread(recorded, state):
    assert state.snapshot.moment.valid[:, -18:].all()


def test_the_recording_has_them_and_a_replay_shows_them(recorded, loop_of, state, clock):
    recording = Recording.open(recorded)
    assert recording.schema.names == ("user", "system", "iowait", "other")
    channels = recording.trace("a").node_channels
    np.testing.assert_allclose(channels.values[:, channels.schema.index("memory_used")], 0.5, atol=1e-6)
    clock.now_s = 0.0
    run(loop_of(ReplayFeed(recording, 1.0, clock)), clock, 15)
    shown = state.snapshot.moment.node_channels
    np.testing.assert_allclose(shown.values[0, -10:, shown.schema.index("io_pressure")], 0.1, atol=3e-3)


@pytest.mark.parametrize("name", ["cpu_only", "memory_and_io"])
def test_a_recording_of_an_older_version_is_replayed(name, loop_of, state, clock):
    run(loop_of(ReplayFeed(Recording.open(OLDER / name), 1.0, clock)), clock, 25)
    moment = state.snapshot.moment
    assert moment.valid[0, -20:].all()
    if name == "cpu_only":
        assert moment.node_channels is None
    else:
        assert moment.node_channels.schema.names == ("memory_used", "io_pressure")
        np.testing.assert_allclose(moment.node_channels.values[0, -20:], [[0.5, 0.1]] * 20, atol=1e-6)


@pytest.mark.parametrize("name", ["cpu_only", "memory_and_io"])
def test_the_recording_of_an_older_service_is_continued(name, loop_of, clock, tmp_path, state):
    shutil.copytree(OLDER / name, tmp_path / "recording")
    clock.now_s = START_S + 100.0
    recorder = LiveRecorder(tmp_path / "recording", None)
    loop = loop_of(LiveFeed("test", [("a", Node(clock))], clock), recorder=recorder)
    run(loop, clock, 20)
    problems = state.snapshot.problems
    recorder.close()
    assert recorder.lost == 0
    assert Recording.open(tmp_path / "recording").trace("a").valid.any()
    if name == "cpu_only":
        assert problems == ()
        old = Recording.open(tmp_path / "recording")
    else:
        assert len(problems) == 1
        assert "a new recording has begun" in problems[0]
        old = Recording.open(tmp_path / "recording-1")
    assert old.trace("n0", START_S, START_S + 25).valid.sum() == 45


def with_channels(snapshot):
    """The snapshot made by hand; node n1 uses 25 % of its memory, 40 % in the last second, and has no PSI."""
    values = np.full((2, 300, len(NODE)), np.nan, np.float32)
    values[0, :, NODE.index("memory_used")] = 0.25
    values[0, -1, NODE.index("memory_used")] = 0.4
    moment = replace(snapshot.moment, node_channels=NodeChannels(NODE, values))
    return replace(snapshot, moment=moment, scored=moment)


@pytest.fixture
def client(app, stage, tmp_path):
    vars(stage).update(vars(made.state(tmp_path)))
    stage.publish(with_channels(stage.snapshot), None)
    yield TestClient(app, base_url="http://127.0.0.1")
    stage.store.close()


def test_the_api_has_their_values_now_and_second_by_second(client):
    now = client.get("/api/v1/nodes/n1").json()["node_channels"]
    assert now == dict.fromkeys(NODE.names) | {"memory_used": 0.4}
    traces = client.get("/api/v1/nodes/n1/traces", params={"seconds": 3}).json()["node_channels"]
    assert traces["memory_used"] == [0.25, 0.25, 0.4]
    assert traces["io_pressure"] == [None] * 3
    assert heat_of(client.get("/api/v1/nodes/n1/traces").json()).node_channels["memory_used"] == 0.4


def test_the_node_page_has_a_line_for_memory_pressure_and_each_other_channel_that_is_known(client):
    assert 'id="node-channels" data-node="n1"' in client.get("/nodes/n1").text
    picture = client.get("/pictures/node-channels", params={"node": "n1"}).json()
    assert [line["name"] for line in picture["lines"]] == list(SPREAD.names)
    memory, cpu, *_ = picture["lines"]
    assert (memory["label"], memory["now"], cpu["now"]) == ("memory in use", 0.4, None)
    assert set(base64.b64decode(cpu["levels"])) == {255}
    assert list(base64.b64decode(memory["levels"]))[-2:] == [64, 102]
    assert client.get("/pictures/node-channels", params={"node": "nobody"}).json()["lines"] == []


def test_the_explanation_of_an_event_lists_them_and_survives_the_store(tmp_path):
    store = Store(tmp_path / "state.sqlite")
    why = replace(made.WHY, node_ratios=(NodeRatio("memory_used", 0.25), NodeRatio("io_pressure", 0.5)))
    store.write([(made.EVENT, why)])
    assert store.event("e1").why == why
    store.close()


def test_the_event_page_names_them(client, stage):
    why = replace(made.WHY, node_ratios=(NodeRatio("memory_used", 0.25), NodeRatio("io_pressure", 0.5)))
    stage.store.write([(made.EVENT, why)])
    text = client.get("/events/e1").text
    assert "On n1 at the same time: memory in use 25.0 %, I/O pressure 50.0 %." in text


def test_the_terminal_shows_them(clock):
    stream, source = RateStream(), Node(clock)
    traces = []
    for clock.now_s in (10.0, 11.0, 12.0):
        trace = stream.push(source.readings()[0])
        traces += [trace] if trace is not None else []
    board = board_of(traces)
    assert board.heat.node_channels["memory_used"] == 0.5
    assert np.isnan(board.heat.node_channels["cpu_pressure"])


def test_they_are_not_sent_to_the_scorers_of_a_large_cluster():
    moment = with_channels(made.snapshot()).moment
    assert Part.of(moment, np.array([0])).moment.node_channels is None
