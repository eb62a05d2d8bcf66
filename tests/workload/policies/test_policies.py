"""The table of policies, and the particulars of some of them."""

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import POLICIES, Now, Policy, Request, find_policy, policy_names
from clustertwin.workload.policies.multifactor import multifactor
from clustertwin.workload.simulator import simulate

NOW = Now(time_s=100.0, free_procs=4.0, free_gpus=0.0, procs=8.0, waiting=2.0)


def request(**fields: float) -> Request:
    known = {"submit_s": 50.0, "request_s": 60.0, "procs": 2.0, "usage_ratio": 0.0, "ready_s": 100.0}
    return Request(**(dict.fromkeys(Request._fields, 0.0) | known | fields))


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_gives_an_array_the_scores_of_its_jobs(name: str):
    score = find_policy(name).score
    many = request(submit_s=np.array([10.0, 50.0]), request_s=np.array([60.0, 600.0]), procs=np.array([1.0, 8.0]))
    each = [
        score(request(submit_s=10.0, request_s=60.0, procs=1.0), NOW),
        score(request(submit_s=50.0, request_s=600.0, procs=8.0), NOW),
    ]
    assert np.broadcast_to(score(many, NOW), 2).tolist() == pytest.approx(each)


def test_a_request_has_no_run_time():
    assert not any("run" in field for field in Request._fields)


def test_the_error_for_an_unknown_policy_lists_the_policies():
    with pytest.raises(SettingsError, match="fcfs, sjf"):
        find_policy("lottery")
    assert policy_names()[: len(POLICIES)] == list(POLICIES)


def test_a_policy_or_a_function_needs_no_name():
    own = Policy("own", lambda request, now: request.procs)
    assert find_policy(own) is own
    assert find_policy(own.score).varies


@pytest.mark.medium
def test_with_fair_share_the_user_with_less_usage_goes_first():
    # User 1 uses the machine for a day. Then both users wait, and user 1 submitted first.
    jobs = Jobs.build([0, 100, 101], [86400, 60, 60], request_s=[86400, 60, 60], cpus=[4, 4, 4], user=[1, 1, 2])
    fair = simulate(jobs, 4, multifactor(age=0, fairshare=1000, job_size=0), hold=False)
    assert fair.start_s.tolist() == [0, 86460, 86400]
    unfair = simulate(jobs, 4, multifactor(age=1000, fairshare=0, job_size=0), hold=False)
    assert unfair.start_s.tolist() == [0, 86400, 86460]


def test_wfp3_and_unicep_count_the_wait_up_to_the_decision():
    for name in ("wfp3", "unicep"):
        score = find_policy(name).score
        later = NOW._replace(time_s=200.0)
        assert score(request(), later) < score(request(), NOW) < score(request(submit_s=100.0), NOW)
