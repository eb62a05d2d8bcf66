"""The simulator against a real slurmctld: ten situations, the same start order, starts within two backfill cycles.

A real Slurm in tenfold time is not the same twice: a second that the host takes from it is most of a backfill cycle. A
situation that disagrees is tried again on a fresh site, at most twice, the last time in fivefold time. A simulator that
is wrong disagrees each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.workload.slurm.real_site import RealJob, RunSettings, reason_to_skip, run_site
from tests.workload.slurm.scenarios import (
    ACCOUNTS,
    CONF,
    RESERVE,
    SCENARIOS,
    SUBMISSIONS,
    scenario_log,
    scenario_of,
    scenario_site,
)

from clustertwin.workload.slurm.joblog.job_readers import read_log
from clustertwin.workload.slurm.site.slurm_site import SlurmSite
from clustertwin.workload.slurm.site_comparison import agreement, spearman
from clustertwin.workload.slurm.site_simulation import simulate_site

FACTORS = (10, 10, 5)  # times as fast as the host's clock, in each run
CYCLE_S = 15.0  # bf_interval of the site
#: Starts that are closer together than this have no order: a busy host delays single commands.
TIE_S = 5.0


@dataclass(frozen=True, slots=True)
class Both:
    real: dict[str, RealJob]
    start_s: dict[str, float]
    preemptions: int
    sacct: Path
    site: SlurmSite


RunOf = Callable[[int], Both]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """The runs by number. Each takes place when it is first asked for."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    log, names = scenario_log()
    site = scenario_site(tmp_path_factory.mktemp("read"))
    schedule = simulate_site(site, log)
    starts = dict(zip(names, schedule.start_s.tolist(), strict=True))

    @cache
    def run(number: int) -> Both:
        directory = tmp_path_factory.mktemp("site")
        real = run_site(directory, CONF, ACCOUNTS, SUBMISSIONS, RunSettings(FACTORS[number], RESERVE, give_up_s=1500.0))
        jobs = {job.name: job for job in real}
        return Both(jobs, starts, schedule.preemptions, directory / "jobs.sacct", site)

    return run


def assert_agreement(run_of: RunOf, disagreements: Callable[[Both], list[str]]) -> None:
    """One of the runs agrees."""
    found: list[list[str]] = []
    for number in range(len(FACTORS)):
        try:
            found.append(disagreements(run_of(number)))
        except RuntimeError as error:  # a daemon did not start
            found.append([str(error)])
        if not found[-1]:
            return
    pytest.fail("\n".join(f"run {number}: {line}" for number, lines in enumerate(found) for line in lines))


def differing_starts(both: Both, scenario: str) -> list[str]:
    simulated = {name: s for name, s in both.start_s.items() if scenario_of(name) == scenario}
    real = {name: job.start_s for name, job in both.real.items() if scenario_of(name) == scenario}
    started = {name for name, start_s in simulated.items() if math.isfinite(start_s)}
    if started != real.keys():
        return [f"started: {sorted(started)} simulated, {sorted(real)} real"]
    apart = [name for name in real if not abs(real[name] - simulated[name]) <= 2 * CYCLE_S]
    swapped = [
        (one, other)
        for one in real
        for other in real
        if real[one] < real[other] - TIE_S and simulated[one] > simulated[other] + TIE_S
    ]
    lines = [f"{name} started at {simulated[name]:.0f} s, on the real Slurm {both.real[name]}" for name in apart]
    return lines + [f"{one} started after {other}, on the real Slurm before" for one, other in swapped]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_jobs_start_as_on_a_real_slurmctld(run_of, scenario):
    assert_agreement(run_of, lambda both: differing_starts(both, scenario))


@pytest.mark.real
@pytest.mark.slow
def test_preemptions_are_those_of_a_real_slurmctld(run_of):
    def differing(both: Both) -> list[str]:
        restarts = sum(job.restarts for job in both.real.values())
        return [] if both.preemptions == restarts == 1 else [f"{both.preemptions} simulated, {restarts} real"]

    assert_agreement(run_of, differing)


def differing_waits(both: Both) -> list[str]:
    log = read_log(both.sacct)
    if len(log) != len(both.real):
        return [f"sacct has {len(log)} of {len(both.real)} jobs"]
    schedule = simulate_site(both.site, log)
    row = agreement(schedule)["all"][0]
    # Jobs that start at once wait 0 to 5 s in accelerated time, in no order; rank those that waited.
    recorded = np.array([job.start_s - job.submit_s for job in log.jobs])
    waited = recorded > CYCLE_S
    rank = spearman(recorded[waited], schedule.wait_s[waited])
    # Where a job was preempted, the log has its last run only: before that its node is free for others.
    preempted = np.array([job.partitions == ("low",) for job in log.jobs])
    met = np.all(np.abs(recorded - schedule.wait_s)[~preempted] <= 60) and row.jobs == len(log)
    near = row.simulated_wait_s == pytest.approx(row.recorded_wait_s, rel=0.1)
    return [] if met and near and rank >= 0.95 else [f"{row}, rank correlation {rank:.3f}"]


@pytest.mark.real
@pytest.mark.slow
def test_waits_that_sacct_recorded_are_met(run_of):
    assert_agreement(run_of, differing_waits)
