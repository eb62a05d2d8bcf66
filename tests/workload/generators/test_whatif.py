import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.generators import WhatIf, make
from clustertwin.workload.generators.contract import concatenate
from clustertwin.workload.generators.whatif import counts


@pytest.fixture(scope="module")
def days(log):
    """How long the log lasts."""
    return float(log.submit_s[-1] / 86400)


@pytest.fixture(scope="module")
def ask(log):
    fitted = make().fit(log, np.random.default_rng(0))

    def ask(n=None, seed=0, **changes):
        return concatenate(fitted.imagine(n, np.random.default_rng(seed), WhatIf(**changes)))

    return ask


def work(jobs):
    return float((jobs.nodes * jobs.run_s).sum())


@pytest.mark.parametrize("load", [0.5, 0.8, 1.3, 2.0])
def test_the_load_asked_for_is_the_load_offered(load, log, ask, days):
    assert work(ask(load=load, days=days)) / work(log) == pytest.approx(load, rel=0.05)


def test_a_number_of_jobs_at_another_load_takes_the_same_time(log, ask):
    jobs = ask(n=int(1.3 * len(log)), load=1.3)
    assert len(jobs) == int(1.3 * len(log))
    assert jobs.submit_s[-1] == pytest.approx(log.submit_s[-1], rel=0.15)
    assert work(jobs) / work(log) == pytest.approx(1.3, rel=0.05)


@pytest.mark.parametrize("machine", [16, 128])
def test_another_machine_is_as_busy_and_no_job_is_larger_than_it(machine, log, ask, days):
    jobs = ask(machine=machine, days=days)
    assert work(jobs) / machine == pytest.approx(work(log) / 64, rel=0.05)
    assert jobs.nodes.max() <= machine
    assert np.array_equal(jobs.cpus, 16 * jobs.nodes)
    assert jobs.machine.nodes == machine


def test_a_user_who_submits_twice_as_much_changes_nobody_else(log, ask, days):
    jobs = ask(users={"2": 2.0}, days=days)
    assert np.sum(jobs.user == 2) / np.sum(log.user == 2) == pytest.approx(2, rel=0.15)
    assert np.sum(jobs.user != 2) / np.sum(log.user != 2) == pytest.approx(1, rel=0.05)


def test_sizes_are_more_or_less_frequent_as_asked(log, ask, days):
    jobs = ask(sizes={"1-4": 0.5, "8-": 2.0}, days=days)
    assert np.sum(jobs.nodes <= 4) / np.sum(log.nodes <= 4) == pytest.approx(0.5, rel=0.05)
    assert np.sum(jobs.nodes >= 8) / np.sum(log.nodes >= 8) == pytest.approx(2.0, rel=0.05)


def test_a_start_date_keeps_weekdays(ask):
    saturday_s = 1_893_456_000.0 + 4 * 86400  # 5 January 2030
    jobs = ask(n=100, start_s=saturday_s)
    assert jobs.epoch_s == saturday_s
    assert jobs.submit_s[0] >= 2 * 86400 - 3 * 3600  # nobody before Monday


def test_a_longer_period_lasts_as_long_as_asked(ask, log, days):
    jobs = ask(days=3 * days)
    assert jobs.submit_s[-1] < 3 * days * 86400
    assert len(jobs) == pytest.approx(3 * len(log), rel=0.05)


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"load": 0.0, "days": 1.0}, "above zero"),
        ({"users": {"nobody": 2.0}, "days": 1.0}, "no user 'nobody'"),
        ({"sizes": {"few": 2.0}, "days": 1.0}, "no range of sizes"),
        ({"sizes": {"1-": 0.0}, "days": 1.0}, "nobody is left"),
        ({"users": {"2": -1.0}, "days": 1.0}, "zero or more"),
        ({}, "how many jobs, or how many days"),
    ],
)
def test_a_wish_that_cannot_be_granted_says_why(wish, reason, ask):
    with pytest.raises(SettingsError, match=reason):
        ask(**wish)


def test_counts_are_even_and_right_in_sum():
    drawn = counts(np.full(1000, 0.3), np.arange(1000.0), np.random.default_rng(0))
    assert abs(drawn.sum() - 300) <= 1
    assert abs(drawn[:100].sum() - 30) <= 1
