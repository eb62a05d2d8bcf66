"""Rounds: complete ones are kept, killed ones done again, other settings refused, failures told."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.job_labels import spans_of
from clustertwin.telemetry.campaign.launcher import Finished, Launcher
from clustertwin.telemetry.campaign.plan import CampaignSettings, Planned, Room
from clustertwin.telemetry.campaign.recorded_rounds import Outcome, Progress, run_rounds
from clustertwin.telemetry.recording import Recording

NODES = {"here": tuple(sorted(os.sched_getaffinity(0)))[:1]}


class Instant:
    """A launcher whose jobs take one step each."""

    def __init__(self, jobs: Sequence[Planned], fails: str = "", dies: bool = False) -> None:
        self.jobs, self.fails, self.dies, self.closed = list(jobs), fails, dies, False

    running: tuple[str, ...] = ("something",)

    @property
    def pending(self) -> int:
        return len(self.jobs)

    def step(self, now_s: float) -> list[Finished]:
        if self.dies:
            raise KeyboardInterrupt
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        failed = job.type == self.fails
        spans = spans_of(job, job.name, NODES, now_s, now_s + 1, failed)
        return [Finished(job.name, tuple(spans), "its reason" if failed else "")]

    def close(self) -> None:
        self.closed = True


class Bench:
    """Runs rounds in no time, and remembers the launchers it made."""

    def __init__(self, out: Path) -> None:
        self.out, self.made, self.seen = out, list[Instant](), list[Progress]()

    def run(self, settings: CampaignSettings, fails: str = "", dies: bool = False) -> list[Outcome]:
        def make(jobs: Sequence[Planned], scratch: Path, prefix: str) -> Launcher:
            self.made.append(Instant(jobs, fails, dies))
            return self.made[-1]

        seconds = count(1_800_000_000)
        return run_rounds(
            self.out, settings, NODES, Room.host(1), make, report=self.seen.append, tick=lambda: float(next(seconds))
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "campaign")


def test_each_round_is_a_recording_of_one_split_with_its_labels(bench: Bench) -> None:
    outcomes = bench.run(CampaignSettings(rounds=3))
    assert [outcome.split for outcome in outcomes] == ["train", "validation", "test"]
    for outcome in outcomes:
        recording = Recording.open(outcome.directory)
        assert (recording.campaign, recording.split) == (outcome.campaign, outcome.split)
        assert {span.job_type for span in recording.spans} == {"np", "good-io", "bad-io", "idle"}


def test_complete_rounds_are_kept_and_new_ones_added(bench: Bench) -> None:
    bench.run(CampaignSettings(rounds=1))
    outcomes = bench.run(CampaignSettings(rounds=2))
    assert [outcome.kept for outcome in outcomes] == [True, False]
    assert len(bench.made) == 2


def test_an_interrupted_round_ends_its_jobs_and_is_done_again(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.run(CampaignSettings(rounds=1), dies=True)
    assert bench.made[0].closed
    (outcome,) = bench.run(CampaignSettings(rounds=1))
    assert not outcome.kept
    assert len(Recording.open(outcome.directory).spans) == 4


def test_another_seed_does_not_mix_into_a_campaign(bench: Bench) -> None:
    bench.run(CampaignSettings(rounds=1, seed=1))
    with pytest.raises(SettingsError, match="seed was 1, now 2"):
        bench.run(CampaignSettings(rounds=1, seed=2))


def test_a_failure_is_told_and_the_rest_goes_on(bench: Bench) -> None:
    (outcome,) = bench.run(CampaignSettings(rounds=1), fails="np")
    assert list(outcome.failures.values()) == ["its reason"]
    types = {span.job_type for span in Recording.open(outcome.directory).spans}
    assert types == {"failed", "good-io", "bad-io", "idle"}


def test_progress_counts_up_to_all_jobs(bench: Bench) -> None:
    bench.run(CampaignSettings(rounds=1))
    done = [progress.done for progress in bench.seen]
    assert done == sorted(done)
    assert done[-1] == bench.seen[-1].jobs == 4
