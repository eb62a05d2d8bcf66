"""Users who react: think times are kept, dates of sessions stay, and the log's own machine changes nothing."""

from dataclasses import replace

import numpy as np
import pytest
from tests.workload.generators.conftest import office_log

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.studies.user_feedback import followed, react


def waiting_log() -> Jobs:
    """User 2 fills a machine of 4 for 100 s. Job A of user 1 therefore ends at 110, and 10 s later user 1 submits B.

    C follows B at once, and D begins a session on the next day.
    """
    return Jobs.build(
        submit_s=[0.0, 0.0, 120.0, 125.0, 86400.0], run_s=[100.0, 10.0, 10.0, 10.0, 10.0],
        request_s=[100.0, 10.0, 10.0, 10.0, 10.0], cpus=[4, 4, 4, 4, 4], user=[2, 1, 1, 1, 1],
    )  # fmt: skip


def test_on_a_larger_machine_a_user_submits_after_the_same_think_time():
    reacting = react(waiting_log(), procs=8, own_procs=4)
    # A ends at 10 instead of 110.
    assert reacting.jobs.submit_s.tolist() == [0.0, 0.0, 20.0, 25.0, 86400.0]
    assert reacting.following == pytest.approx(1 / 5)
    assert reacting.change_s == 0.0


def test_on_the_own_machine_nothing_changes():
    reacting = react(waiting_log(), procs=4, own_procs=4)
    assert reacting.jobs.submit_s.tolist() == waiting_log().submit_s.tolist()


def test_recorded_waits_say_what_a_user_waited_for():
    log = replace(waiting_log(), wait_s=np.array([0.0, 100.0, 0.0, 5.0, 0.0]))
    # The size of the own machine is not needed.
    assert react(log, procs=8, own_procs=1000).jobs.submit_s.tolist() == [0.0, 0.0, 20.0, 25.0, 86400.0]


def test_a_job_follows_the_latest_end_before_it():
    order, user = np.arange(3), np.zeros(3, dtype=np.int64)
    submit_s, ends_s = np.array([0.0, 1.0, 600.0]), np.array([550.0, 500.0, 700.0])
    after, think_s = followed(order, user, submit_s, ends_s)
    assert after.tolist() == [-1, -1, 0]
    assert think_s[2] == 50.0


def test_users_who_wait_longer_submit_later_and_keep_their_jobs_and_order():
    log = office_log(users=12)
    log = log.take(slice(0, 600))
    small = react(log, procs=64, own_procs=128, rounds=10)
    assert sorted(small.jobs.id.tolist()) == sorted(log.id.tolist())
    assert small.jobs.submit_s.mean() > log.submit_s.mean()
    assert np.all(np.diff(small.jobs.submit_s) >= 0)
    for user in np.unique(log.user):
        assert small.jobs.id[small.jobs.user == user].tolist() == log.id[log.user == user].tolist()


def test_a_log_without_users_is_refused():
    with pytest.raises(SettingsError, match="no users"):
        react(replace(waiting_log(), user=np.full(5, -1)), procs=8)


def test_jobs_that_do_not_fit_are_counted():
    log = replace(waiting_log(), cpus=np.array([8, 4, 4, 4, 4]))
    reacting = react(log, procs=4, own_procs=8)
    assert reacting.document()["refused"] == 1
    assert "1 jobs cannot run" in reacting.summary()
