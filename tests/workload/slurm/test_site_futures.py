"""Futures of a log: which run times they draw, and intervals of a change over them."""

from __future__ import annotations

import numpy as np

from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.site_comparison import ConfigChange
from clustertwin.workload.slurm.site_futures import _with_interval, future_log


def jobs_of(user: str, runs_s: list[float], limit_s: float, first: int = 1) -> list[SlurmJob]:
    return [SlurmJob(first + k, 10.0 * k, run_s, user, limit_s=limit_s) for k, run_s in enumerate(runs_s)]


def test_a_job_draws_from_its_own_users_jobs_with_the_same_limit():
    ann = jobs_of("ann", [1.0, 2.0, 3.0, 4.0, 5.0], 60.0)
    long = jobs_of("ann", [100.0, 200.0, 300.0, 400.0, 500.0], 600.0, 10)
    log = SlurmLog((*ann, *long))
    for seed in range(20):
        runs_s = [job.run_s for job in future_log(log, np.random.default_rng(seed)).jobs]
        assert set(runs_s[:5]) <= {1.0, 2.0, 3.0, 4.0, 5.0}
        assert set(runs_s[5:]) <= {100.0, 200.0, 300.0, 400.0, 500.0}


def test_rare_requests_draw_from_the_user_and_rare_users_keep_their_run_times():
    ann = jobs_of("ann", [1.0, 2.0, 3.0, 4.0, 5.0], 60.0)
    rare = jobs_of("ann", [900.0], 999.0, 20)
    bo = jobs_of("bo", [77.0, 78.0], 60.0, 30)
    log = SlurmLog((*ann, *rare, *bo))
    futures = [future_log(log, np.random.default_rng(seed)) for seed in range(40)]
    assert len({future.jobs[5].run_s for future in futures}) > 3
    assert {tuple(job.run_s for job in future.jobs[6:]) for future in futures} == {(77.0, 78.0)}


def test_a_job_that_never_ran_stays_so():
    log = SlurmLog((*jobs_of("ann", [1.0, 2.0, 3.0, 4.0, 5.0], 60.0), SlurmJob(9, 0.0, np.inf, "ann", limit_s=60.0)))
    assert np.isinf(future_log(log, np.random.default_rng(0)).jobs[-1].run_s)


def test_the_interval_holds_eighty_percent_of_the_ratios():
    row = _with_interval(ConfigChange("all", 3, 10.0, 20.0), [float(k) for k in range(11)])
    assert (row.ratio_low, row.ratio_high) == (1.0, 9.0)
    assert np.isnan(_with_interval(ConfigChange("all", 3, 10.0, 20.0), []).ratio_low)
