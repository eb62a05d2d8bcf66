"""The clock of a replay: it follows real time, and waits for a reader that is slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustertwin.service.live.feeds.replay_feed import ReplayFeed
from clustertwin.telemetry.campaign.simulated_rounds import write_recording
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    settings = ClusterSettings(1, 2, 0.1, ("np",), job_s=(300.0, 360.0))
    write_recording(tmp_path / "r", simulate(settings, read_signatures(None), 0), "c", "test")
    return Recording.open(tmp_path / "r")


def seconds_taken(feed: ReplayFeed) -> int:
    taken = feed.take()
    return taken[0].values.shape[1] if taken else 0


def test_a_slow_reader_gets_every_second_in_small_steps(recording: Recording):
    clock = [0.0]
    feed = ReplayFeed(recording, 40.0, lambda: clock[0], most_step_s=20.0)
    assert seconds_taken(feed) == 0
    steps = []
    for _ in range(60):
        clock[0] += 5.0  # 200 s of the recording pass in each turn
        steps.append(seconds_taken(feed))
    assert max(steps) == 20
    assert sum(steps) == recording.end_s - recording.start_s
    assert feed.ended


def test_a_quick_reader_keeps_the_pace(recording: Recording):
    clock = [0.0]
    feed = ReplayFeed(recording, 40.0, lambda: clock[0], most_step_s=20.0)
    seconds_taken(feed)
    for _ in range(4):
        clock[0] += 0.25
        assert seconds_taken(feed) == 10
