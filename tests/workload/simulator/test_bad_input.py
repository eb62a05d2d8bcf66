"""Faulty logs and policies: each fault is named and counted, and no simulation runs forever."""

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import Now, Policy, Request
from clustertwin.workload.simulator import PolicyError, simulate


def remarks(schedule) -> dict[str, list[int]]:
    return {name: ids.tolist() for name, ids in schedule.remarks.items()}


def test_each_bad_job_is_named_with_its_reason():
    jobs = Jobs.build(
        submit_s=[0, 1, 2, 3, 4, np.nan, 5],
        run_s=[5, -1, 5, 5, 0, 5, 5],
        request_s=[5, 5, 5, -1, 5, 5, 3],
        cpus=[1, 1, 9, 1, 1, 1, -1],
        nodes=[-1, -1, -1, -1, -1, -1, 2],
    )
    schedule = simulate(jobs, procs=4)
    assert schedule.jobs.id.tolist() == [1, 4, 5, 7]
    assert remarks(schedule) == {
        "refused, no submission time": [6],
        "refused, run time unknown or negative": [2],
        "refused, larger than the machine": [3],
        "run time is 0 s": [5],
        "no time limit; using the run time instead": [4],
        "ran past the time limit; reservation extended": [7],
    }


def test_a_job_without_a_size_is_refused():
    schedule = simulate(Jobs.build([0, 0], [1, 1], cpus=[0, 1]), procs=1)
    assert remarks(schedule)["refused, no size"] == [1]


def test_unsorted_logs_are_sorted_with_a_remark():
    schedule = simulate(Jobs.build([5, 0], [1, 1], cpus=[1, 1]), procs=1)
    assert schedule.jobs.id.tolist() == [2, 1]
    assert remarks(schedule)["out of order; sorted by submission time"] == [2]


def test_a_policy_never_sees_a_group_that_is_not_in_the_log():
    jobs = Jobs.build([0, 0, 0], [1, 1, 1], cpus=[1, 1, 1], group=[0, 2**32 - 2, 2**32 + 5], queue=[1, 1, 1])
    schedule = simulate(jobs, procs=1, policy=lambda request, now: -request.group)
    assert schedule.start_s.tolist() == [0, 1, 2]  # the third was 5, and started first
    assert remarks(schedule)["group or queue number beyond 32 bits; a policy sees -1 for both"] == [2, 3]


@pytest.mark.parametrize("jobs", [Jobs.build([], []), Jobs.build([0], [1], cpus=[8])])
def test_a_log_without_any_job_that_can_run_is_an_error(jobs: Jobs):
    with pytest.raises(TraceError, match="no job can run on 4 processors"):
        simulate(jobs, procs=4)


@pytest.mark.parametrize(
    "options",
    [
        {"procs": 0},
        {"procs": 2**31},  # its jobs had a negative size
        {"procs": 4, "gpus": 2**31},
        {"procs": 4, "backfill": "greedy"},
        {"procs": 4, "policy": "lottery"},
        {"procs": 4, "unit": "racks"},
    ],
)
def test_impossible_settings_are_refused(options):
    with pytest.raises(SettingsError):
        simulate(Jobs.build([0], [1], cpus=[1]), **options)


# The first job fills the machine; the policy orders the others.
FOUR = Jobs.build([0, 1, 1, 1], [20, 10, 5, 1], request_s=[20, 10, 5, 1], cpus=[4, 4, 4, 4])


@pytest.mark.medium
@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
@pytest.mark.parametrize("varies", [True, False])
def test_jobs_with_nan_scores_go_last_and_are_counted(varies: bool, backfill: str):
    def nan_for_ten(request: Request, now: Now):
        return request.request_s + (request.request_s - 10.0) * 0.0 / (request.request_s - 10.0)

    with np.errstate(invalid="ignore"):
        schedule = simulate(FOUR, 4, Policy("half", nan_for_ten, varies), backfill)
    if backfill != "conservative":  # which makes reservations at submission, before any score
        assert schedule.start_s.tolist() == [0, 26, 21, 20]
        assert any("returned NaN" in remark for remark in schedule.remarks)
    assert np.isfinite(schedule.start_s).all()


@pytest.mark.parametrize("varies", [True, False])
def test_a_policy_that_raises_is_named(varies: bool):
    def failing(request: Request, now: Now):
        raise ValueError("no score")

    with pytest.raises(PolicyError, match="failing"):
        simulate(FOUR, 4, Policy("failing", failing, varies))


def test_a_policy_that_does_not_compile_is_an_error_that_describes_scores():
    def text_score(request: Request, now: Now):
        return "first"

    with pytest.raises(PolicyError, match="arithmetic and numpy functions"):
        simulate(FOUR, 4, text_score)


def test_a_policy_cannot_read_the_run_time():
    def reads_run_time(request, now):
        return request.run_s

    with pytest.raises(PolicyError, match="run_s"):
        simulate(FOUR, 4, reads_run_time)


def test_a_function_is_a_policy():
    def widest(request: Request, now: Now) -> float:
        return -request.procs

    jobs = Jobs.build([0, 1, 1], [10, 5, 5], request_s=[10, 5, 5], cpus=[4, 1, 3])
    assert simulate(jobs, 4, widest, hold=False).start_s.tolist() == [0, 10, 10]
