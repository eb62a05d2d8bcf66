"""EASY with estimated run times: by hand, against plain EASY, and against its own promise."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.run_times.run_time_history import KEPT, new_history, recent_runs, remember
from clustertwin.workload.simulator import simulate
from clustertwin.workload.simulator.simulate_estimates import EstimateSettings, simulate_estimates


def random_log(seed: int, n: int = 400) -> Jobs:
    rng = np.random.default_rng(seed)
    request_s = rng.choice([60.0, 600.0, 3600.0, 7200.0], n)
    return Jobs.build(
        submit_s=np.cumsum(rng.exponential(200.0, n).round()),
        run_s=np.maximum((request_s * rng.beta(0.6, 1.5, n)).round(), 1.0),
        request_s=request_s,
        cpus=rng.integers(1, 17, n),
        user=rng.integers(0, 8, n),
    )


@pytest.mark.parametrize("seed", range(5))
def test_requested_times_in_the_order_of_submission_are_plain_easy(seed: int):
    jobs = random_log(seed)
    ours = simulate_estimates(jobs, 16, EstimateSettings("requested", shortest_first=False))
    assert np.array_equal(ours.start_s, simulate(jobs, 16, "fcfs", "easy").start_s)


@pytest.mark.parametrize("estimates", ["requested", "last-two", "predicted"])
def test_the_machine_is_never_over_capacity_and_no_job_is_lost(estimates):
    schedule = simulate_estimates(random_log(7), 16, EstimateSettings(estimates))
    assert np.isfinite(schedule.start_s).all()
    assert (schedule.wait_s >= 0).all()
    for moment_s in schedule.start_s:
        held = (schedule.start_s <= moment_s) & (schedule.end_s > moment_s)
        assert schedule.size[held].sum() <= 16


def test_a_short_prediction_lets_a_job_backfill_that_its_limit_forbids():
    # The user's first job ends after 10 s of 1,000. The last job then fits into the hole before the wide one.
    jobs = Jobs.build(
        submit_s=[0, 100, 101, 102],
        run_s=[10, 100, 50, 10],
        request_s=[1000, 100, 50, 1000],
        cpus=[2, 3, 4, 1],
        user=[1, 2, 3, 1],
    )
    assert simulate_estimates(jobs, 4, EstimateSettings("requested")).start_s.tolist() == [0, 100, 200, 250]
    assert simulate_estimates(jobs, 4, EstimateSettings("predicted")).start_s.tolist() == [0, 100, 200, 102]


def test_an_exceeded_prediction_grows_and_the_head_still_starts():
    jobs = Jobs.build(
        submit_s=[0, 100, 101, 102],
        run_s=[10, 100, 50, 900],
        request_s=[1000, 100, 50, 1000],
        cpus=[2, 3, 4, 1],
        user=[1, 2, 3, 1],
    )
    schedule = simulate_estimates(jobs, 4, EstimateSettings("predicted"))
    assert schedule.start_s.tolist() == [0, 100, 1002, 102]  # the wide job waits for the one that ran longer


def test_without_patience_limits_count_again_once_a_reservation_slipped():
    # Short jobs of user 1 all run longer than predicted and delay the wide job of user 3 one after another.
    rng = np.random.default_rng(0)
    n = 60
    jobs = Jobs.build(
        submit_s=[0, 100, 101, *(102 + 20 * np.arange(n))],
        run_s=[10, 100, 50, *rng.integers(300, 400, n)],
        request_s=[1000, 100, 50, *np.full(n, 1000)],
        cpus=[2, 3, 4, *np.full(n, 1)],
        user=[1, 2, 3, *np.full(n, 1)],
    )
    patient = simulate_estimates(jobs, 4, EstimateSettings("predicted", recent=1, patience_s=1e9))
    bounded = simulate_estimates(jobs, 4, EstimateSettings("predicted", recent=1, patience_s=60.0))
    assert bounded.start_s[2] < patient.start_s[2]


def test_the_narrowest_class_with_enough_jobs_answers_with_its_newest_first():
    user, request_s, procs = np.array([1, 1, 1, 2]), np.array([60, 60, 600, 60]), np.array([4, 4, 4, 4])
    history, found = new_history(user, request_s, procs), np.zeros(KEPT)
    table = tuple(history)
    for job, run_s in ((0, 20.0), (1, 30.0), (2, 500.0)):
        remember(table, job, run_s, float(request_s[job]))
    assert recent_runs(table, 0, 60.0, 0.0, 2, found) == (2, 0)
    assert found[:2].tolist() == [30.0, 20.0]
    assert recent_runs(table, 0, 60.0, 25.0, 1, found) == (1, 0)
    assert found[0] == 30.0
    count, level = recent_runs(table, 3, 60.0, 0.0, 1, found)  # user 2 has no past: fractions of all jobs' limits
    assert (count, level) == (3, 4)
    assert found[:3] == pytest.approx([50.0, 30.0, 20.0])
