"""`twin demo`: a job hangs on a simulated cluster, and an event explains it."""

from __future__ import annotations

import json

import pytest

from clustertwin.cli import demo as command
from clustertwin.telemetry.campaign.demo_cluster import write_demo
from clustertwin.telemetry.recording import Recording


@pytest.mark.slow
def test_the_demo_ends_with_the_event_of_the_job_that_hangs(twin, tmp_path):
    done = twin("demo", "--stop", "--no-browser", "--json", cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    event, fault = shown["event"], shown["fault"]
    assert event["jobs"] == [fault["job"]]
    assert event["onset_s"] >= fault["onset_s"]
    assert {ratio["channel"]: ratio["seen"] for ratio in event["why"]["ratios"]}["other"] > 0.9
    assert shown["url"].endswith(f"/events/{event['id']}")
    assert shown["url"] not in done.stderr, "nothing answers there once the demo has stopped"
    assert event["why"]["sentence"] in done.stderr


def test_every_job_of_the_demo_runs_to_its_end(tmp_path):
    story = write_demo(tmp_path / "demo")
    end_s = story.settings.start_s + 3600 * story.settings.hours
    assert story.jobs == 6
    assert {span.end_s for span in Recording.open(story.directory).spans} == {end_s}


@pytest.mark.slow
def test_a_demo_without_its_event_says_so(twin_here, monkeypatch):
    monkeypatch.setattr(command, "PATIENCE_S", 0.0)
    done = twin_here("demo", "--stop", "--no-browser")
    assert done.returncode == 1
    assert "found no event of job" in done.stderr
