"""The scorecard: a log against itself, against noise, and the figures published for Theta."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import orjson
import pytest

from clustertwin.core.errors import TraceError
from clustertwin.workload.fidelity import ComparedLog, compare, scorecard
from clustertwin.workload.fidelity.fidelity_report import report
from clustertwin.workload.fidelity.measures.c2st import auc, folds, windows
from clustertwin.workload.formats import read, read_report
from clustertwin.workload.jobs import Jobs

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")


def bursty(n: int, seed: int) -> Jobs:
    """Sessions of similar jobs by one user, as in real logs."""
    rng = np.random.default_rng(seed)
    session = np.repeat(np.arange(n), rng.geometric(0.2, n))[:n]
    user = rng.integers(0, 8, n)[session]
    nodes = (1 << rng.integers(0, 5, n))[session]
    interval = np.where(np.diff(session, prepend=-1) > 0, rng.exponential(900, n), rng.exponential(10, n))
    run = rng.lognormal(5, 1, n)[session] * rng.uniform(0.9, 1.1, n)
    return Jobs.build(np.cumsum(interval), run, nodes=nodes, request_s=np.full(n, 7200.0), user=user)


def test_windows_hold_consecutive_jobs_in_order():
    table = np.arange(12.0).reshape(6, 2)
    assert windows(table, 3).tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


@pytest.mark.medium
def test_trees_cannot_separate_equal_distributions_and_separate_distant_ones():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(200, 2)), rng.normal(size=(200, 2))
    assert auc(a, b) == pytest.approx(0.5, abs=0.12)
    assert auc(a, b + 9) > 0.99


def test_a_copy_is_held_out_with_its_original():
    table = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.0, 6.0]] * 10)
    held_out = folds(table, seed=0)
    assert len(set(held_out[::4]) | set(held_out[2::4])) == 1


@pytest.mark.slow
def test_the_yardsticks_separate_order_from_rows():
    interleaved, _, bootstrap, twin = compare(
        ComparedLog("real", bursty(1500, 1)), [ComparedLog("twin", bursty(1500, 2))]
    )
    assert 0.45 < bootstrap.c2st.row_auc < 0.55 < 0.75 < bootstrap.c2st.window_auc
    assert interleaved.c2st.window_auc < 0.6
    assert bootstrap.arrivals.autocorrelation[1] == pytest.approx(0, abs=0.06)
    assert bootstrap.marginals["run"].ks_complement > 0.95
    assert twin.validity.share == 1
    assert orjson.dumps(twin.document(), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def test_too_few_jobs_are_refused():
    with pytest.raises(TraceError, match="31 jobs are too few"):
        scorecard(bursty(31, 0), bursty(100, 0))
    with pytest.raises(TraceError, match="mine: 40 jobs are too few; a comparison also needs two halves of 32"):
        compare(ComparedLog.of(bursty(40, 0), "mine"), [ComparedLog.of(bursty(100, 0), "fake")])


@pytest.mark.slow
def test_the_figures_published_for_theta(data):
    theta = data / "traces/theta"
    real = ComparedLog("real", read(theta / "theta-15000-intervals.csv"))
    fake = read_report(theta / "published/cg.csv", lenient=True)
    card = scorecard(real, fake, "CopulaGAN", procs=4392)
    scores = {name: round(score.ks_complement, 3) for name, score in card.marginals.items()}
    assert scores == {"interval": 0.879, "run": 0.910, "limit": 0.692, "cpus": 0.826, "nodes": 0.819}
    assert card.arrivals.autocorrelation_real[1] == pytest.approx(0.384, abs=0.001)
    assert card.arrivals.autocorrelation[1] == pytest.approx(0, abs=0.02)
    easy = card.scheduler["EASY"]
    assert (round(easy.real.wait_s), round(easy.real.bounded_slowdown, 1)) == (14989, 29.7)
    assert round(easy.synthetic.wait_s) == 385
    assert card.c2st.row_auc > 0.998
    assert card.privacy.copy_rate_holdout == pytest.approx(0.022, abs=0.001)
    assert card.validity.share < 0.05


def test_jobs_that_are_all_equal_cannot_be_compared() -> None:
    equal_jobs = Jobs.build(submit_s=np.zeros(100), run_s=np.ones(100), cpus=np.ones(100))
    with pytest.raises(TraceError, match="all jobs are equal"):
        scorecard(equal_jobs, equal_jobs, procs=4)


def test_equal_jobs_at_different_times_are_compared_by_their_arrivals() -> None:
    regular, random = (
        Jobs.build(submit_s=submit_s, run_s=np.ones(200), cpus=np.ones(200))
        for submit_s in (60.0 * np.arange(200), np.sort(np.random.default_rng(0).uniform(0, 12000, 200)))
    )
    card = scorecard(random, regular, procs=4)
    assert card.columns == ("interval",)
    assert card.c2st.row_auc > 0.9
    assert np.isfinite(card.correlation.gap)


@pytest.mark.slow
def test_a_log_with_processors_only_is_compared_in_nodes() -> None:
    jobs = bursty(400, 0)
    real = replace(jobs, cpus=jobs.nodes * 64, gpus=np.zeros(len(jobs), np.int64))
    without_nodes = replace(real, nodes=np.full(len(real), -1), gpus=np.full(len(real), -1))
    card = scorecard(real, without_nodes, procs=64)
    assert card.load.ratio == pytest.approx(1)
    assert card.validity.share == 1
    assert card.marginals["nodes"].ks_complement == 1
    page = report(ComparedLog("real", real), [ComparedLog("synthetic", without_nodes)], [card])
    assert "nodes" in page


def test_a_log_without_nodes_is_refused_if_cpus_do_not_imply_them() -> None:
    jobs = bursty(400, 0)
    uneven = replace(jobs, cpus=jobs.nodes * 64 + np.arange(len(jobs)) % 3)
    with pytest.raises(TraceError, match="no job of this log has a node count"):
        scorecard(uneven, replace(uneven, nodes=np.full(len(jobs), -1)), procs=64)
