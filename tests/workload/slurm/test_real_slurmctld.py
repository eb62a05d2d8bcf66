"""The simulator against a real slurmctld: ten situations, the same start order, starts within two backfill cycles."""

from __future__ import annotations

import math
from dataclasses import dataclass
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

FACTOR = 10  # times as fast as the host's clock
CYCLE_S = 15.0  # bf_interval of the site
#: Starts that are closer together than this have no order: a busy host delays single commands.
TIE_S = 5.0


@dataclass(frozen=True, slots=True)
class Both:
    real: dict[str, RealJob]
    start_s: dict[str, float]
    nodes: dict[str, tuple[str, ...]]
    preemptions: int
    sacct: Path
    site: SlurmSite


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    if reason := reason_to_skip():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("site")
    real = run_site(directory, CONF, ACCOUNTS, SUBMISSIONS, RunSettings(FACTOR, RESERVE))
    log, names = scenario_log()
    site = scenario_site(tmp_path_factory.mktemp("read"))
    schedule = simulate_site(site, log)
    starts = dict(zip(names, schedule.start_s.tolist(), strict=True))
    nodes = dict(zip(names, schedule.nodes, strict=True))
    return Both({job.name: job for job in real}, starts, nodes, schedule.preemptions, directory / "jobs.sacct", site)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_jobs_start_as_on_a_real_slurmctld(both, scenario):
    simulated = {name: s for name, s in both.start_s.items() if scenario_of(name) == scenario}
    real = {name: job.start_s for name, job in both.real.items() if scenario_of(name) == scenario}
    started = {name for name, start_s in simulated.items() if math.isfinite(start_s)}
    assert started == real.keys()
    late = {name: (real[name], simulated[name]) for name in real if abs(real[name] - simulated[name]) > 2 * CYCLE_S}
    assert not late
    swapped = [
        (one, other)
        for one in real
        for other in real
        if real[one] < real[other] - TIE_S and simulated[one] > simulated[other] + TIE_S
    ]
    assert not swapped


@pytest.mark.real
@pytest.mark.slow
def test_preemptions_are_those_of_a_real_slurmctld(both):
    assert both.preemptions == sum(job.restarts for job in both.real.values()) == 1


@pytest.mark.real
@pytest.mark.slow
def test_waits_that_sacct_recorded_are_met(both):
    log = read_log(both.sacct)
    assert len(log) == len(both.real)
    schedule = simulate_site(both.site, log)
    row = agreement(schedule)["all"][0]
    assert (row.jobs, row.within_minute_ratio) == (len(log), 1.0)
    assert row.simulated_wait_s == pytest.approx(row.recorded_wait_s, rel=0.1)
    # Jobs that start at once wait 0 to 5 s in accelerated time, in no order; rank those that waited.
    recorded = np.array([job.start_s - job.submit_s for job in log.jobs])
    waited = recorded > CYCLE_S
    assert spearman(recorded[waited], schedule.wait_s[waited]) >= 0.95
