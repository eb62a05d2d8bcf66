"""Measures of fidelity: known answers, properties, and agreement with scipy and sdmetrics."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.workload.fidelity import ComparedLog
from clustertwin.workload.fidelity.measures.arrivals import arrivals, autocorrelations, by_hour, by_weekday, fano
from clustertwin.workload.fidelity.measures.c2st import auc, judge
from clustertwin.workload.fidelity.measures.concurrency import (
    compare_concurrency,
    concurrency_notes,
    submits_are_starts,
)
from clustertwin.workload.fidelity.measures.correlation import pearson, ranks, similarity, spearman
from clustertwin.workload.fidelity.measures.marginals import ks_complement, wasserstein_log
from clustertwin.workload.fidelity.measures.offered_load import Capacity, capacity, offered_load
from clustertwin.workload.fidelity.measures.privacy import copy_rate, privacy
from clustertwin.workload.fidelity.measures.user_behaviour import behaviour
from clustertwin.workload.fidelity.measures.validity import validity
from clustertwin.workload.fidelity.yardsticks import bootstrap, halves, interleaved
from clustertwin.workload.jobs import Jobs, Machine


@pytest.fixture(scope="module")
def stats():
    """An independent reference, imported only by the tests that use it."""
    return pytest.importorskip("scipy.stats")


values = st.lists(st.integers(0, 50).map(float), min_size=2, max_size=40).map(np.array)


@given(a=values, b=values)
def test_ks_and_wasserstein_agree_with_scipy(stats, a, b):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns about its p-value, which we do not use
        assert ks_complement(a, b) == pytest.approx(1 - stats.ks_2samp(a, b).statistic)
    assert wasserstein_log(a, b) == pytest.approx(stats.wasserstein_distance(np.log1p(a), np.log1p(b)))


@given(values)
def test_a_column_has_no_distance_to_itself(a):
    assert ks_complement(a, a) == 1
    assert wasserstein_log(a, a) == 0


@given(pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=5, max_size=40))
def test_spearman_agrees_with_scipy(stats, pairs):
    table = np.array(pairs, dtype=float)
    if len(np.unique(table[:, 0])) > 1 and len(np.unique(table[:, 1])) > 1:
        assert spearman(table)[0, 1] == pytest.approx(stats.spearmanr(table[:, 0], table[:, 1])[0])
        assert pearson(table)[0, 1] == pytest.approx(stats.pearsonr(table[:, 0], table[:, 1])[0])
    assert np.array_equal(ranks(table[:, 0]), stats.rankdata(table[:, 0]))


@pytest.mark.slow
def test_ks_correlation_and_pair_scores_agree_with_sdmetrics():
    single = pytest.importorskip("sdmetrics.single_column")
    pairs = pytest.importorskip("sdmetrics.column_pairs")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    real = np.exp(rng.multivariate_normal([5, 7], [[1, 0.6], [0.6, 1]], 2000))
    fake = np.exp(rng.multivariate_normal([5.2, 7], [[1.3, 0.1], [0.1, 1]], 1500))
    for i in range(2):
        theirs = single.KSComplement.compute(pandas.Series(real[:, i]), pandas.Series(fake[:, i]))
        assert ks_complement(real[:, i], fake[:, i]) == pytest.approx(theirs)
    frames = pandas.DataFrame(real), pandas.DataFrame(fake)
    for word, ours in (("Pearson", pearson), ("Spearman", spearman)):
        theirs = pairs.CorrelationSimilarity.compute_breakdown(*frames, coefficient=word)
        assert ours(real)[0, 1] == pytest.approx(theirs["real"])
        assert ours(fake)[0, 1] == pytest.approx(theirs["synthetic"])
        assert similarity(ours(real), ours(fake))[0, 1] == pytest.approx(theirs["score"])


def test_a_constant_column_has_no_correlation():
    table = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    assert pearson(table)[0, 1] == 0


def test_autocorrelation_of_an_alternating_sequence_is_minus_one():
    assert autocorrelations(np.tile([1.0, 2.0], 10), (1,))[1] == pytest.approx(-1)
    assert autocorrelations(np.arange(30.0), (3,))[3] == pytest.approx(1)
    assert autocorrelations(np.ones(2), (1,))[1] == 0


def test_fano_is_zero_for_a_clock_one_for_poisson_and_large_for_bursts():
    rng = np.random.default_rng(0)
    assert fano(np.arange(1001.0), 10) < 0.01
    assert fano(np.cumsum(rng.exponential(1, 20000)), 10) == pytest.approx(1, abs=0.1)
    bursts = np.concatenate([start + np.arange(50) * 0.01 for start in range(0, 50000, 1000)])
    assert fano(np.sort(bursts), 10) > 10


def test_hours_and_weekdays_are_local():
    # Monday 3 June 2024, 22:30 UTC is half past midnight on Tuesday in Rome.
    jobs = Jobs.build([0.0], [1.0], epoch_s=1717453800.0, timezone="Europe/Rome")
    assert np.argmax(by_hour(jobs)) == 0
    assert np.argmax(by_weekday(jobs)) == 1


def test_offered_load_is_work_over_capacity():
    jobs = Jobs.build([0.0, 100.0], [50.0, 100.0], nodes=[2, 1])
    assert offered_load(jobs, Capacity(4, "nodes")) == (2 * 50 + 100) / (4 * 100)


def test_the_machine_size_is_what_the_log_states_or_its_largest_job():
    assert capacity(Jobs.build([0.0], [1.0], nodes=[3])) == Capacity(3, "nodes")
    assert capacity(Jobs.build([0.0], [1.0], cpus=[3], machine=Machine(10, 4))) == Capacity(40, "cpus")
    assert capacity(Jobs.build([0.0], [1.0], cpus=[3]), procs=7) == Capacity(7, "cpus")


def test_consecutive_jobs_of_one_user_are_counted():
    jobs = Jobs.build([0.0, 1, 2, 3], [1.0] * 4, user=[1, 1, 1, 2], cpus=[4, 4, 2, 2], request_s=[60.0] * 4)
    users = behaviour(jobs)
    assert (users.users, users.top_share, users.session_jobs) == (2, 0.75, 2)
    assert users.same_user == pytest.approx(2 / 3)
    assert users.same_job == 0.5


def test_validity_names_the_rule_that_is_broken():
    real = ComparedLog("real", Jobs.build([0.0, 1], [5.0, 70.0], nodes=[1, 4], cpus=[64, 256], request_s=[60.0, 60.0]))
    jobs = Jobs.build(np.arange(5.0), [5, 5, 5, 71, 5], nodes=[1, 2, 9, 1, 1], cpus=[64, 128, 576, 64, 100],
                      request_s=[60.0] * 5)  # fmt: skip
    fake = ComparedLog("fake", jobs, {"nodes": np.array([1, 1.7, 9, 1, 1])})
    result = validity(real, fake, Capacity(4, "nodes"))
    assert result.share == pytest.approx(1 / 5)
    assert result.broken == {
        "nodes not a whole number": 1,
        "larger than the machine (4 nodes)": 1,
        "ran further past its limit than any real job": 1,
        "cpus do not fit the nodes": 2,
    }
    assert validity(real, real, Capacity(4, "nodes")).share == 1


def test_a_job_of_zero_seconds_is_invalid_if_no_real_job_is_one():
    real = ComparedLog("real", Jobs.build([0.0, 1], [5.0, 70.0], cpus=[1, 4]))
    fake = ComparedLog("fake", Jobs.build([0.0, 1], [0.0, 70.0], cpus=[1, 4]))
    assert validity(real, fake, Capacity(4, "cpus")).broken == {"ran for 0 s, which no real job did": 1}
    assert validity(fake, fake, Capacity(4, "cpus")).share == 1


def test_a_column_that_no_synthetic_job_has_breaks_no_rule():
    real = ComparedLog("real", Jobs.build([0.0, 1], [5.0, 70.0], nodes=[1, 4], cpus=[64, 256]))
    fake = ComparedLog("fake", Jobs.build([0.0, 1], [5.0, 70.0], nodes=[1, 4]))
    assert validity(real, fake, Capacity(4, "nodes")).share == 1


def one_after_another(n: int = 100) -> Jobs:
    """A machine of 4 cpus that is always full: each job starts when the last one ends. No wait is recorded."""
    return Jobs.build(60.0 * np.arange(n), np.full(n, 60.0), cpus=np.full(n, 4), wait_s=np.zeros(n))


def test_a_log_whose_submissions_are_starts_is_recognised():
    on = Capacity(4, "cpus")
    log = one_after_another()
    assert submits_are_starts(log, on)
    assert not submits_are_starts(replace(log, wait_s=np.full(len(log), 30.0)), on)  # they waited
    crowded = replace(log, submit_s=log.submit_s / 2)
    assert not submits_are_starts(crowded, on)  # eight cpus at once: somebody had to wait
    spread = replace(log, submit_s=log.submit_s * 5)
    assert submits_are_starts(spread, on)  # never two at once, although the machine is not busy
    apart = Jobs.build(60.0 * np.arange(100), np.full(100, 60.0), cpus=np.ones(100, int), wait_s=np.zeros(100))
    assert not submits_are_starts(apart, Capacity(64, "cpus"))  # small jobs fit at any time
    idle = replace(log, submit_s=log.submit_s * 20)
    assert not submits_are_starts(idle, on)  # an idle machine has no queue


def test_a_synthetic_log_that_asks_for_more_than_the_machine_is_named():
    on = Capacity(4, "cpus")
    real = one_after_another()
    fake = replace(real, submit_s=np.sort(np.random.default_rng(0).uniform(0, 6000, len(real))))
    found = compare_concurrency(ComparedLog("real", real), ComparedLog("fake", fake), on)
    assert found.real_peak == 4 < found.synthetic_peak
    notes = concurrency_notes(found, on)
    assert "are start times" in notes[0]
    assert "waits cannot be compared" in notes[1]


@pytest.mark.slow
def test_the_judge_sees_one_row_that_is_repeated_thousands_of_times():
    """All copies of an invented row are held out together, so the cross-validated trees never learn it."""
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    real, fake = np.round(rng.lognormal(3, 1, (3000, 1))) + 1, np.round(rng.lognormal(3, 1, (3000, 1))) + 1
    fake[rng.random(3000) < 0.3] = 0.0
    assert judge(real, fake) > 0.6
    assert auc(real, fake, identity=np.array([0])) < 0.55
    assert judge(real, np.round(rng.lognormal(3, 1, (3000, 1))) + 1) == pytest.approx(0.5, abs=0.05)


def test_a_copy_is_equal_in_every_digit():
    real = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert copy_rate(real, np.array([[3.0, 4.0], [3.0, 4.5], [1.0, 2.0]])) == pytest.approx(2 / 3)


def log(n: int = 400, seed: int = 0) -> ComparedLog:
    rng = np.random.default_rng(seed)
    nodes = rng.integers(1, 9, n)
    submit_s, run_s = np.cumsum(rng.exponential(60, n)), rng.lognormal(5, 1, n)
    limits, users = np.full(n, 7200.0), rng.integers(0, 5, n)
    return ComparedLog("real", Jobs.build(submit_s, run_s, nodes=nodes, cpus=nodes * 64, request_s=limits, user=users))


def test_every_job_of_the_bootstrap_is_a_copy_and_no_held_out_job_is():
    pytest.importorskip("scipy")
    real = log()
    drawn = bootstrap(real, np.random.default_rng(3)).synthetic
    result = privacy(real, drawn, ("interval", "run", "nodes"))
    assert (result.copy_rate, result.copy_rate_holdout) == (1, 0)
    assert result.closest_5th == 0


def test_yardsticks_keep_every_interval_with_its_job():
    real = log()
    for pair in (halves(real), interleaved(real, 25)):
        together = np.concatenate([pair.real.table(("interval", "run")), pair.synthetic.table(("interval", "run"))])
        expected = real.table(("interval", "run"))
        assert np.allclose(np.sort(together, axis=0), np.sort(expected, axis=0))
    even = interleaved(real, 25).real
    assert np.allclose(even.column("run")[:50], real.column("run")[np.r_[0:25, 50:75]])


def test_a_log_of_equal_jobs_is_separated():
    """All its rows were in one fold, and the trees of that fold saw one log only: it ended with a traceback."""
    real, synthetic = np.random.default_rng(0).random((50, 2)), np.ones((50, 2))
    assert auc(real, synthetic) > 0.95
    assert auc(synthetic, synthetic) == pytest.approx(0.5, abs=0.15)


def test_halves_keep_the_hours_and_the_weekdays_of_their_jobs():
    """Two jobs at nine and at noon on a Monday, two on a Tuesday: they were moved together, to other hours."""
    hours = np.array([9.0, 12, 33, 36])
    log = Jobs.build(3600 * hours, np.ones(4), nodes=np.ones(4), epoch_s=1_704_672_000.0)  # Monday 8 January 2024
    pair = halves(ComparedLog("real", log))
    found = arrivals(pair.real, pair.synthetic)
    assert (found.hour_distance, found.weekday_distance) == (0, 1)


@pytest.mark.parametrize(("utc", "local_hour"), [(1_711_845_000, 1), (1_711_848_600, 3)])
def test_hours_of_a_day_with_a_clock_change_are_local(utc, local_hour):
    """31 March 2024, 00:30 and 01:30 UTC: 01:30 and 03:30 in Rome. The first was 02:30, which no clock showed."""
    assert np.argmax(by_hour(Jobs.build([0.0], [1.0], epoch_s=float(utc), timezone="Europe/Rome"))) == local_hour


def test_one_window_has_no_fano_factor():
    """It was 0, as of a clock: the counts of one window do not vary, whatever the arrivals are."""
    bursts = np.repeat([0.0, 10.0, 1000.0], 50)
    assert np.isnan(fano(bursts, 100))
    assert fano(bursts, 50) > 0
