"""Large logs: what is sampled is stated, what was made faster gives the same figures, and every part is announced."""

from importlib.util import find_spec

import numpy as np
import pytest

from clustertwin.workload.fidelity import ComparedLog, compare, scorecard
from clustertwin.workload.fidelity.fidelity_report import report
from clustertwin.workload.fidelity.measures import c2st as c2st_module
from clustertwin.workload.fidelity.measures import judged_sample
from clustertwin.workload.fidelity.measures.arrivals import LAGS, autocorrelations
from clustertwin.workload.fidelity.measures.correlation import ranks
from clustertwin.workload.fidelity.measures.judged_sample import judged_rows
from clustertwin.workload.fidelity.measures.privacy import copy_rate
from clustertwin.workload.fidelity.scorecard import PARTS
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.privacy import user_day_attack as user_days
from clustertwin.workload.privacy.attack_score import score_claims
from clustertwin.workload.privacy.attacked_log import attacked
from clustertwin.workload.privacy.job_attack import shifted_copies, undo_shift

#: The figures of commit 23db5e4, which sampled nothing; the eighth has false claims within the log since 0.2.0.
GOLDEN = (0.5261375, 0.4558071585098612, 0.4885181108665199, 0.028333333333333332, 0.1868944418509266,
          0.010464015526988424, 0.5137778037246774, 0.5063222222222222, 0.0, 0.0016666666666666668)  # fmt: skip

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")


def office(n: int, seed: int) -> Jobs:
    """Jobs of ten users with few shapes, over many weeks; integers, so that the figures below hold everywhere."""
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, 40 * 7 * 86400, n))
    shape = rng.integers(0, 6, n)
    return Jobs.build(submit_s, rng.integers(1, 4000, n), nodes=1 << shape, request_s=3600 * (1 + shape % 3),
                      user=rng.integers(0, 10, n), epoch_s=1_700_438_400.0)  # fmt: skip


@pytest.mark.medium
def test_a_small_comparison_has_the_figures_that_it_had_before_large_logs_were_sampled():
    card = scorecard(office(600, 1), office(600, 2), procs=64)
    found = (card.c2st.row_auc, card.c2st.window_auc, card.c2st.judge_auc, card.privacy.copy_rate,
             card.privacy.closest_median_holdout, card.arrivals.autocorrelation[5],
             card.attacks.user_days.synthetic.auc, card.attacks.nearest_jobs.synthetic.auc,
             card.attacks.near_copies.share_shifted, card.attacks.shifted_copies.share)  # fmt: skip
    assert found == pytest.approx(GOLDEN, abs=1e-9)
    assert card.sample.notes() == []


@pytest.fixture
def few_judged(monkeypatch):
    """At most 200 jobs are judged."""
    monkeypatch.setattr(judged_sample, "MOST_JUDGED_JOBS", 200)
    monkeypatch.setattr(c2st_module, "MOST_JUDGED_JOBS", 200)


@pytest.mark.slow
def test_a_sampled_comparison_says_what_it_looked_at(few_judged):
    real, fake = (ComparedLog(name, office(600, seed)) for name, seed in (("real", 1), ("fake", 2)))
    cards = compare(real, [fake], procs=64)
    assert cards[-1].document()["sample"] == {
        "real_judged": 200, "real_jobs": 600, "synthetic_judged": 200, "synthetic_jobs": 600
    }  # fmt: skip
    assert "200 of 600 real and 200 of 600 synthetic jobs" in report(real, [fake], cards)


def test_trees_see_no_more_rows_and_windows_than_are_judged(few_judged, monkeypatch):
    seen = []
    monkeypatch.setattr(c2st_module, "auc", lambda a, b, *rest: seen.append((len(a), len(b))) or 0.5)
    scorecard(office(600, 1), office(150, 2), procs=64)
    assert seen == [(200, 150), (12, 9)]


@pytest.mark.slow
def test_every_part_of_a_comparison_is_announced():
    shown = []
    compare(ComparedLog("real", office(200, 1)), [ComparedLog("fake", office(200, 2))], procs=64,
            show=lambda *step: shown.append(step))  # fmt: skip
    assert [done for _, done, _ in shown] == list(range(4 * len(PARTS)))
    assert shown[-1] == ("comparing: fake", 4 * len(PARTS) - 1, 4 * len(PARTS))


def test_judged_rows_keep_their_order_and_are_all_rows_of_a_small_table():
    table = np.arange(50.0)[:, None]
    assert judged_rows(table, 50, 0) is table
    drawn = judged_rows(table, 20, 0)[:, 0]
    assert len(drawn) == 20
    assert np.all(np.diff(drawn) > 0)


def test_autocorrelations_equal_correlations_of_the_ranks_of_both_parts():
    values = np.random.default_rng(0).integers(0, 9, 300).astype(float)
    expected = {lag: np.corrcoef(ranks(values[:-lag]), ranks(values[lag:]))[0, 1] for lag in LAGS}
    assert autocorrelations(values) == pytest.approx(expected, abs=1e-12)


def test_copies_are_counted_as_by_comparing_every_pair():
    rng = np.random.default_rng(0)
    real, synthetic = rng.integers(0, 3, (40, 3)).astype(float), rng.integers(0, 4, (30, 3)).astype(float)
    pairs = (real[None] == synthetic[:, None]).all(axis=2)
    assert copy_rate(real, synthetic) == pairs.any(axis=1).mean()


def test_the_shift_of_a_moved_log_is_found():
    log = office(500, 3)
    real, moved = attacked(log, log)
    found = shifted_copies(real, undo_shift(moved, -3), np.random.default_rng(0))
    assert (found.weeks, found.share) == (3, 1.0)


def test_shapes_are_numbered_as_distinct_rows_of_size_and_limit():
    log = office(300, 4)
    (real,) = attacked(log)
    rows = np.column_stack([log.nodes, log.request_s])
    assert np.array_equal(real.shape, np.unique(rows, axis=0, return_inverse=True)[1].ravel())


def test_strata_may_have_gaps():
    scores, true = np.array([3.0, 1, 2, 0, 5, 4]), np.array([True, False, False, True, True, False])
    narrow, wide = np.array([0, 0, 1, 1, 2, 2]), np.array([3, 3, 70, 70, 900, 900])
    assert score_claims(scores, true, narrow) == score_claims(scores, true, wide)


def test_the_days_of_a_long_log_are_scored_in_parts_as_at_once(monkeypatch):
    real, published = attacked(office(800, 5), office(800, 6))
    at_once = user_days.user_day_attack(real, published)
    monkeypatch.setattr(user_days, "DAYS_AT_ONCE", 17)
    in_parts = user_days.user_day_attack(real, published)
    assert in_parts.auc == pytest.approx(at_once.auc, abs=1e-9)
