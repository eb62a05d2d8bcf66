"""Generators without order: what each of them keeps of a log."""

import numpy as np
import pytest

from clustertwin.workload.fidelity.measures.correlation import ranks
from clustertwin.workload.fidelity.measures.marginals import ks_complement
from clustertwin.workload.generators import make
from clustertwin.workload.generators.job_rows import RowDecoder, rows
from clustertwin.workload.generators.lublin import ArrivalModel, RunTimeModel, SizeModel
from clustertwin.workload.jobs import COLUMNS


def spearman(a, b):
    return float(np.corrcoef(ranks(np.asarray(a, float)), ranks(np.asarray(b, float)))[0, 1])


def test_bootstrap_draws_only_real_jobs(log):
    jobs = make("bootstrap").fit(log, np.random.default_rng(0)).sample(5000, np.random.default_rng(1))
    known = set(zip(log.user, log.nodes, log.run_s, log.request_s, strict=True))
    assert set(zip(jobs.user, jobs.nodes, jobs.run_s, jobs.request_s, strict=True)) <= known


def test_the_copula_keeps_marginals_and_rank_correlation(log):
    jobs = make("gaussian-copula").fit(log, np.random.default_rng(0)).sample(20_000, np.random.default_rng(1))
    for name in ("run_s", "request_s", "nodes", "user"):
        assert ks_complement(getattr(log, name).astype(float), getattr(jobs, name).astype(float)) > 0.97
    real, drawn = spearman(log.run_s, log.request_s), spearman(jobs.run_s, jobs.request_s)
    assert drawn == pytest.approx(real, abs=0.15)  # ties of the few limits weaken it


def test_rows_and_back_give_the_same_jobs(log):
    back = RowDecoder.of(log).jobs(rows(log))
    for name in set(COLUMNS) - {"id", "submit_s", "wait_s"}:
        assert np.array_equal(getattr(back, name), getattr(log, name)), name
    assert np.array_equal(back.interval_s[1:], log.interval_s[1:])


def test_lublin_recovers_its_own_parameters():
    rng = np.random.default_rng(0)
    truth = SizeModel(serial=0.25, power=0.75, low=1.0, middle=4.5, high=8.0, lower=0.7)
    fitted = SizeModel.of(truth.draw(50_000, rng), 256)
    assert fitted.serial == pytest.approx(0.25, abs=0.01)
    assert fitted.lower == pytest.approx(0.7, abs=0.05)
    assert fitted.power == pytest.approx(0.75, abs=0.08)


def test_lublin_run_times_fit_the_log(log):
    runs = RunTimeModel.of(log.run_s, log.nodes)
    drawn = runs.draw(np.resize(log.nodes, 20_000), np.random.default_rng(0))
    assert ks_complement(log.run_s, drawn) > 0.88


def test_lublin_arrivals_have_the_logs_mean_interval_and_its_day(log):
    arrivals = ArrivalModel.of(log.submit_s)
    at_s, _ = arrivals.draw(20_000, 0.0, np.random.default_rng(0))
    assert at_s[-1] / 20_000 == pytest.approx(log.submit_s[-1] / len(log), rel=0.1)
    night, night_real = np.mean(at_s % 86400 < 6 * 3600), np.mean(log.submit_s % 86400 < 6 * 3600)
    assert night == pytest.approx(night_real, abs=0.03)
