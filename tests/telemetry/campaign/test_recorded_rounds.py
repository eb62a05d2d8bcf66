"""Rounds: complete ones are kept, interrupted ones repeated, other settings refused, failures reported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.job_labels import spans_of
from clustertwin.telemetry.campaign.launcher import FinishedJob, Launcher
from clustertwin.telemetry.campaign.plan import AvailableCpus, CampaignSettings, PlannedJob
from clustertwin.telemetry.campaign.recorded_rounds import CampaignHost, RoundOutcome, RoundProgress, run_rounds
from clustertwin.telemetry.recording import Recording

NODES = {"here": tuple(sorted(os.sched_getaffinity(0)))[:1]}


class Instant:
    """A launcher whose jobs take one step each."""

    def __init__(self, jobs: Sequence[PlannedJob], fails: str = "", dies: bool = False) -> None:
        self.jobs, self.fails, self.dies, self.closed = list(jobs), fails, dies, False

    running: tuple[str, ...] = ("something",)

    @property
    def pending(self) -> int:
        return len(self.jobs)

    def step(self, now_s: float) -> list[FinishedJob]:
        if self.dies:
            raise KeyboardInterrupt
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        failed = job.type == self.fails
        spans = spans_of(job, job.name, NODES, now_s, now_s + 1, failed)
        return [FinishedJob(job.name, tuple(spans), "its reason" if failed else "")]

    def close(self) -> None:
        self.closed = True


class Bench:
    """Runs rounds without waiting, and keeps the launchers it creates."""

    def __init__(self, out: Path) -> None:
        self.out, self.launchers, self.reports = out, list[Instant](), list[RoundProgress]()

    def run(self, settings: CampaignSettings, fails: str = "", dies: bool = False) -> list[RoundOutcome]:
        def make(jobs: Sequence[PlannedJob], scratch: Path, prefix: str) -> Launcher:
            self.launchers.append(Instant(jobs, fails, dies))
            return self.launchers[-1]

        seconds = count(1_800_000_000)
        host = CampaignHost(NODES, AvailableCpus.host(1), make)
        return run_rounds(self.out, settings, host, report=self.reports.append, tick=lambda: float(next(seconds)))


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
    assert len(bench.launchers) == 2


def test_an_interrupted_round_ends_its_jobs_and_is_done_again(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.run(CampaignSettings(rounds=1), dies=True)
    assert bench.launchers[0].closed
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
    done = [progress.done for progress in bench.reports]
    assert done == sorted(done)
    assert done[-1] == bench.reports[-1].jobs == 4
