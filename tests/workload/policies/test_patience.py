"""A bound on starvation, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import find_policy
from clustertwin.workload.policies.learned import initial_weights, learned
from clustertwin.workload.policies.patience import with_patience
from clustertwin.workload.simulator import simulate


def starving() -> Jobs:
    """One processor, one long job, and a short job every 10 s that takes 10 s."""
    n = 50
    return Jobs.build(
        submit_s=[0, 1, *(10.0 * np.arange(1, n + 1) - 1)], run_s=[10, 100, *np.full(n, 10)],
        request_s=[10, 100, *np.full(n, 10)], cpus=np.ones(n + 2),
    )  # fmt: skip


def test_shortest_first_starves_the_long_job_and_patience_bounds_its_wait():
    jobs = starving()
    assert simulate(jobs, 1, "sjf", hold=False).start_s[1] == 510
    bounded = simulate(jobs, 1, with_patience(find_policy("sjf"), 60.0), hold=False)
    assert bounded.start_s[1] == 70  # the first decision after a minute of waiting


@pytest.mark.medium
def test_a_patience_that_is_never_reached_changes_nothing():
    for policy in (find_policy("sjf"), learned(initial_weights(1, np.random.default_rng(0)))):
        plain = simulate(starving(), 1, policy, hold=False)
        assert np.array_equal(simulate(starving(), 1, with_patience(policy, 1e6), hold=False).start_s, plain.start_s)


@pytest.mark.medium
def test_jobs_beyond_patience_go_in_the_order_of_submission():
    jobs = Jobs.build(submit_s=[0, 1, 2, 3], run_s=[100, 30, 20, 10], request_s=[100, 30, 20, 10], cpus=[1, 1, 1, 1])
    bounded = simulate(jobs, 1, with_patience(find_policy("sjf"), 10.0), hold=False)
    assert bounded.start_s.tolist() == [0, 100, 130, 150]
