"""What-if: the changes that are asked for are the changes that are made, natively and by superposition."""

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.generators import WorkloadChange, make
from clustertwin.workload.generators.superposition import concatenate, merge, superpose
from clustertwin.workload.generators.workload_change import even_counts
from clustertwin.workload.jobs import Jobs

pytestmark = pytest.mark.slow

GENERIC = ("bootstrap", "lublin", "gaussian-copula")
SATURDAY_S = 1_893_456_000.0 + 4 * 86400  # 5 January 2030


@pytest.fixture(scope="module")
def days(log):
    """The length of the log."""
    return float(log.submit_s[-1] / 86400)


@pytest.fixture(scope="module")
def what_if(log):
    """(generator, n, seed, changes) -> jobs"""
    fitted = {name: make(name).fit(log, np.random.default_rng(0)) for name in ("crossover", *GENERIC)}

    def what_if(n=None, seed=0, generator="crossover", **changes):
        return concatenate(fitted[generator].what_if(n, np.random.default_rng(seed), WorkloadChange(**changes)))

    return what_if


def work(jobs):
    return float((jobs.nodes * jobs.run_s).sum())


@pytest.mark.parametrize("load", [0.5, 0.8, 1.3, 2.0])
def test_crossover_offers_the_requested_load(load, log, what_if, days):
    assert work(what_if(load=load, days=days)) / work(log) == pytest.approx(load, rel=0.05)


def test_a_number_of_jobs_at_another_load_takes_the_same_time(log, what_if):
    jobs = what_if(n=int(1.3 * len(log)), load=1.3)
    assert len(jobs) == int(1.3 * len(log))
    assert jobs.submit_s[-1] == pytest.approx(log.submit_s[-1], rel=0.15)
    assert work(jobs) / work(log) == pytest.approx(1.3, rel=0.05)


@pytest.mark.parametrize("machine", [16, 128])
def test_another_machine_has_the_same_utilisation_and_no_larger_job(machine, log, what_if, days):
    jobs = what_if(machine=machine, days=days)
    assert work(jobs) / machine == pytest.approx(work(log) / 64, rel=0.05)
    assert jobs.nodes.max() <= machine
    assert np.array_equal(jobs.cpus, 16 * jobs.nodes)
    assert jobs.machine.nodes == machine


@pytest.mark.parametrize("generator", ["crossover", "bootstrap", "gaussian-copula"])
def test_a_larger_machine_adds_jobs_but_no_users(generator, log, what_if, days):
    jobs = what_if(generator=generator, machine=128, days=days)
    assert set(jobs.user) == set(log.user)


def test_a_user_who_submits_twice_as_much_does_not_change_other_users(log, what_if, days):
    jobs = what_if(users={"2": 2.0}, days=days)
    assert np.sum(jobs.user == 2) / np.sum(log.user == 2) == pytest.approx(2, rel=0.15)
    assert np.sum(jobs.user != 2) / np.sum(log.user != 2) == pytest.approx(1, rel=0.05)


def test_sizes_become_more_or_less_frequent(log, what_if, days):
    jobs = what_if(sizes={"1-4": 0.5, "8-": 2.0}, days=days)
    assert np.sum(jobs.nodes <= 4) / np.sum(log.nodes <= 4) == pytest.approx(0.5, rel=0.05)
    assert np.sum(jobs.nodes >= 8) / np.sum(log.nodes >= 8) == pytest.approx(2.0, rel=0.05)


def test_a_start_date_keeps_weekdays(what_if):
    jobs = what_if(n=100, start_s=SATURDAY_S)
    assert jobs.epoch_s == SATURDAY_S
    assert jobs.submit_s[0] >= 2 * 86400 - 3 * 3600  # nobody submits before Monday


def test_a_longer_period_lasts_as_long_as_requested(what_if, log, days):
    jobs = what_if(days=3 * days)
    assert jobs.submit_s[-1] < 3 * days * 86400
    assert len(jobs) == pytest.approx(3 * len(log), rel=0.05)


@pytest.mark.parametrize("generator", GENERIC)
@pytest.mark.parametrize("load", [0.4, 2.5])
def test_superposition_offers_the_requested_load(generator, load, what_if):
    days = 4000.0  # long enough to average over the long gaps of a weekend
    base, changed = what_if(generator=generator, days=days), what_if(generator=generator, days=days, load=load)
    assert len(changed) / len(base) == pytest.approx(load, rel=0.06)
    assert work(changed) / work(base) == pytest.approx(load, rel=0.06)
    assert np.all(np.diff(changed.submit_s) >= 0)
    assert changed.submit_s[-1] < days * 86400


@pytest.mark.parametrize("generator", GENERIC)
def test_superposition_changes_sizes_and_nothing_else(generator, what_if):
    base = what_if(generator=generator, days=4000.0)
    changed = what_if(generator=generator, days=4000.0, sizes={"1-4": 0.5, "8-": 2.0})
    assert np.sum(changed.nodes <= 4) / np.sum(base.nodes <= 4) == pytest.approx(0.5, rel=0.1)
    assert np.sum(changed.nodes >= 8) / np.sum(base.nodes >= 8) == pytest.approx(2.0, rel=0.1)
    between = (base.nodes > 4) & (base.nodes < 8), (changed.nodes > 4) & (changed.nodes < 8)
    assert np.sum(between[1]) == pytest.approx(np.sum(between[0]), rel=0.1)


@pytest.mark.parametrize("generator", ["bootstrap", "gaussian-copula"])
def test_superposition_changes_one_user_and_no_other(generator, what_if):
    base, changed = (what_if(generator=generator, days=4000.0, users=users) for users in ({}, {"2": 2.5}))
    assert np.sum(changed.user == 2) / np.sum(base.user == 2) == pytest.approx(2.5, rel=0.1)
    assert np.sum(changed.user != 2) / np.sum(base.user != 2) == pytest.approx(1, rel=0.06)


@pytest.mark.parametrize("machine", [16, 160])
@pytest.mark.parametrize("generator", GENERIC)
def test_superposition_gives_another_machine_the_same_utilisation(generator, machine, what_if):
    base, changed = (
        what_if(generator=generator, days=4000.0),
        what_if(generator=generator, days=4000.0, machine=machine),
    )
    assert work(changed) / machine == pytest.approx(work(base) / 64, rel=0.1)
    assert changed.nodes.max() <= machine
    assert changed.machine.nodes == machine


def test_superposition_keeps_hours_and_weekdays_of_a_stream_that_has_them(log):
    fitted = make().fit(log, np.random.default_rng(0))
    change = WorkloadChange(load=2.5, start_s=SATURDAY_S)
    jobs = concatenate(superpose(fitted.stream, fitted.modelled_log(), change, 8000, np.random.default_rng(0)))
    at_night, at_night_real = (np.mean(jobs.submit_s % 86400 < 6 * 3600) for jobs in (jobs, log))
    assert at_night == pytest.approx(at_night_real, abs=0.01)
    day = (jobs.submit_s // 86400).astype(int) % 7  # 0 is a Saturday
    assert np.mean((day == 0) | (day == 1)) < 0.03
    assert jobs.epoch_s == SATURDAY_S


def test_lublin_refuses_a_user_because_it_models_none(what_if):
    with pytest.raises(SettingsError, match="does not model users, so the factor of user '2' cannot be applied"):
        what_if(generator="lublin", days=1.0, users={"2": 2.0})


def test_superposition_refuses_factors_that_need_too_many_streams(what_if):
    with pytest.raises(SettingsError, match="multiply to 100; this generator can reach 64"):
        what_if(generator="bootstrap", days=1.0, load=10.0, users={"2": 10.0})


@pytest.mark.parametrize("generator", ["crossover", *GENERIC])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"load": 0.0, "days": 1.0}, "above zero"),
        ({"load": np.inf, "days": 1.0}, "above zero"),
        ({"sizes": {"few": 2.0}, "days": 1.0}, "not a range of sizes"),
        ({"sizes": {"8-1": 2.0}, "days": 1.0}, "'8-1' is empty: 8 is larger than 1"),
        ({"sizes": {"1-": 0.0}, "n": 10}, "the factors leave no jobs"),
        ({"sizes": {"1-8": 2.0, "8-64": 0.5}, "days": 1.0}, "'1-8' and '8-64' overlap with different factors"),
        ({"sizes": {"65-": 2.0}, "days": 1.0}, "no job of the log has a size in '65-'"),
        ({"users": {"2": -1.0}, "days": 1.0}, "zero or more"),
        ({}, "a number of jobs or a number of days"),
    ],
)
def test_an_impossible_change_is_refused_with_a_reason(generator, change, reason, what_if):
    with pytest.raises(SettingsError, match=reason):
        what_if(generator=generator, **change)


@pytest.mark.parametrize("generator", ["crossover", "bootstrap", "gaussian-copula"])
@pytest.mark.parametrize("user", ["nobody", "77"])
def test_a_user_that_the_log_does_not_have_is_refused(generator, user, what_if):
    with pytest.raises(SettingsError, match=f"the log has no user '{user}'"):
        what_if(generator=generator, users={user: 2.0}, days=1.0)


def test_users_can_be_given_by_name():
    rng = np.random.default_rng(0)
    log = Jobs.build(600.0 * np.arange(200), rng.integers(1, 500, 200), cpus=np.ones(200), user=np.arange(200) % 2,
                     names={"user": ("ann", "bob")})  # fmt: skip
    for name in ("crossover", "bootstrap", "gaussian-copula"):
        fitted = make(name).fit(log, np.random.default_rng(0))
        jobs = concatenate(fitted.what_if(50, np.random.default_rng(1), WorkloadChange(users={"ann": 0.0})))
        assert set(jobs.user) == {1}


def test_even_counts_are_even_and_have_the_right_sum():
    counts = even_counts(np.full(1000, 0.3), np.arange(1000.0), np.random.default_rng(0))
    assert abs(counts.sum() - 300) <= 1
    assert abs(counts[:100].sum() - 30) <= 1


def test_merged_streams_are_in_order_and_lose_no_job():
    def stream(times):
        return iter([Jobs.build(np.array(block, float), np.ones(len(block))) for block in times])

    merged = list(merge([stream([[0, 5], [5, 9]]), stream([[1, 1], [2, 30]])]))
    submit_s = np.concatenate([block.submit_s for block in merged]).tolist()
    assert submit_s == [0, 1, 1, 2, 5, 5, 9]  # 30 is not certain: the first stream might still deliver an earlier job
