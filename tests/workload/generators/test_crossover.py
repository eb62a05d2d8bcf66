"""The crossover generator: what it keeps by construction, and its bounds on real logs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertwin.workload.fidelity import scorecard
from clustertwin.workload.formats import read
from clustertwin.workload.generators import make
from clustertwin.workload.jobs import Jobs

REAL = {
    "theta": "traces/theta/theta-15000-intervals.csv",
    "thetagpu": "traces/theta/thetagpu-2023.csv",
    "kth": "traces/swf/KTH-SP2-1996-2.1-cln.swf",
}


@pytest.fixture(scope="module")
def fitted(log):
    return make().fit(log, np.random.default_rng(0))


def test_a_log_of_the_same_length_has_the_same_users_sizes_limits_and_ends(log, fitted):
    jobs = fitted.sample(len(log), np.random.default_rng(1))
    for column in ("user", "nodes", "request_s", "status"):
        assert np.array_equal(np.sort(getattr(jobs, column)), np.sort(getattr(log, column)))


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 3000))
def test_every_job_is_valid(log, fitted, seed, n):
    jobs = fitted.sample(n, np.random.default_rng(seed))
    assert len(jobs) == n
    assert np.all(np.diff(jobs.submit_s) >= 0)
    assert np.array_equal(jobs.cpus, 16 * jobs.nodes)
    assert np.all(jobs.nodes <= 64)
    killed = jobs.status == 5
    assert np.all(jobs.run_s[killed] >= jobs.request_s[killed])
    assert np.all(jobs.run_s[~killed] <= jobs.request_s[~killed])
    assert np.all(jobs.run_s - jobs.request_s <= np.max(log.run_s - log.request_s))


def test_sessions_are_recombined_not_replayed(log, fitted):
    jobs = fitted.sample(len(log), np.random.default_rng(1))
    asked = list(zip(log.user, log.nodes, log.request_s, strict=True))
    drawn = list(zip(jobs.user, jobs.nodes, jobs.request_s, strict=True))
    assert np.mean([a == b for a, b in zip(asked, drawn, strict=True)]) < 0.5


def test_hardly_any_job_is_a_copy(log, fitted):
    jobs = fitted.sample(len(log), np.random.default_rng(1))
    known = set(zip(log.nodes, log.request_s, log.run_s, strict=True))
    copies = np.mean([row in known for row in zip(jobs.nodes, jobs.request_s, jobs.run_s, strict=True)])
    assert copies < 0.01


def test_the_weekend_stays_empty_in_every_pass(log, fitted):
    jobs = fitted.sample(3 * len(log), np.random.default_rng(1))
    weekend = jobs.submit_s // 86400 % 7 >= 5
    assert weekend.mean() < 0.03
    assert jobs.submit_s[-1] == pytest.approx(3 * log.submit_s[-1], rel=0.05)


def test_a_short_piece_of_a_long_log_starts_within_a_day(fitted):
    jobs = fitted.sample(20, np.random.default_rng(7))
    assert jobs.submit_s[0] < 86400
    assert jobs.epoch_s >= 1_700_438_400


def test_a_limit_that_equals_the_run_time_still_does():
    rng = np.random.default_rng(0)
    run_s = rng.integers(10, 5000, 500).astype(float)
    log = Jobs.build(np.cumsum(rng.exponential(300, 500)).round(), run_s, cpus=rng.integers(1, 9, 500), request_s=run_s)
    jobs = make().fit(log, rng).sample(500, rng)
    assert np.array_equal(jobs.run_s, jobs.request_s)


@pytest.mark.parametrize("zeros", [0, 30])
def test_zero_second_jobs_are_exactly_as_frequent_as_in_the_log(zeros):
    rng = np.random.default_rng(0)
    run_s = rng.integers(1, 5, 1000).astype(float)  # whole seconds, most jobs very short
    run_s[:zeros] = 0.0
    log = Jobs.build(np.cumsum(rng.exponential(300, 1000)).round(), run_s, cpus=rng.integers(1, 9, 1000),
                     request_s=np.full(1000, 3600.0), user=rng.integers(0, 5, 1000))  # fmt: skip
    jobs = make().fit(log, rng).sample(1000, rng)
    assert np.sum(jobs.run_s == 0) == zeros


def test_one_user_and_one_kind_of_job_are_enough():
    log = Jobs.build(np.arange(50) * 100.0, np.full(50, 60.0), nodes=np.ones(50), user=np.zeros(50))
    jobs = make().fit(log, np.random.default_rng(0)).sample(200, np.random.default_rng(1))
    assert set(jobs.nodes.tolist()) == {1}
    assert np.all(np.abs(jobs.run_s - 60) < 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_fidelity_on_real_logs_stays_within_its_bounds(name, data):
    real = read(data / REAL[name], lenient=True)
    model = make().fit(real, np.random.default_rng(0))
    cards = [scorecard(real, model.sample(len(real), np.random.default_rng(seed))) for seed in range(2)]
    for card in cards:
        assert min(score.ks_complement for score in card.marginals.values()) >= 0.97
        assert card.arrivals.autocorrelation[1] == pytest.approx(card.arrivals.autocorrelation_real[1], abs=0.05)
        for scale in (5, 20, 100):
            assert card.arrivals.fano[scale] == pytest.approx(card.arrivals.fano_real[scale], rel=0.25)
        assert card.c2st.row_auc <= 0.60
        assert card.c2st.window_auc <= 0.65
        assert card.privacy.copy_rate <= card.privacy.copy_rate_holdout
        assert card.validity.share == 1.0
    assert np.mean([card.load.ratio for card in cards]) == pytest.approx(1, abs=0.05)
    easy = [card.scheduler["EASY"] for card in cards]
    assert np.mean([rule.synthetic.wait_s for rule in easy]) == pytest.approx(easy[0].real.wait_s, rel=0.2)
    slowdown = easy[0].real.bounded_slowdown
    assert np.mean([rule.synthetic.bounded_slowdown for rule in easy]) == pytest.approx(slowdown, rel=0.25)


def test_jobs_of_a_few_seconds_keep_their_distribution():
    """A floor of two seconds smeared them: one job in twelve ran for 6 or 7 s, where no real job did."""
    rng = np.random.default_rng(0)
    n = 4000
    run_s = np.where(rng.random(n) < 0.5, rng.integers(1, 6, n), 60 + np.round(rng.lognormal(5, 1, n)))
    log = Jobs.build(np.cumsum(rng.integers(0, 120, n)), run_s, nodes=np.ones(n), user=rng.integers(0, 30, n))
    jobs = make().fit(log, np.random.default_rng(0)).sample(n, np.random.default_rng(1))
    real, synthetic = (np.bincount(table.run_s[table.run_s < 8].astype(int), minlength=8) / n for table in (log, jobs))
    assert synthetic[0] == 0
    assert np.abs(synthetic - real).max() < 0.05


def test_jobs_whose_limit_repeats_their_run_time_are_not_copied():
    rng = np.random.default_rng(0)
    run_s = rng.integers(1000, 5000, 500).astype(float)
    log = Jobs.build(np.cumsum(rng.exponential(300, 500)).round(), run_s, cpus=rng.integers(1, 9, 500), request_s=run_s)
    jobs = make().fit(log, rng).sample(500, rng)
    known = set(zip(log.cpus, log.run_s, strict=True))
    assert np.mean([row in known for row in zip(jobs.cpus, jobs.run_s, strict=True)]) < 0.1


def test_no_job_is_shorter_than_the_shortest_or_longer_than_a_cap_of_the_log():
    rng = np.random.default_rng(0)
    run_s = np.minimum(rng.integers(2, 9, 1000) ** 4, 2000).astype(float)  # no limits, but nothing runs longer
    log = Jobs.build(np.cumsum(rng.exponential(300, 1000)).round(), run_s, cpus=np.ones(1000, dtype=int))
    jobs = make().fit(log, rng).sample(3000, rng)
    assert jobs.run_s.min() >= run_s.min()
    assert jobs.run_s.max() <= 2000
