"""Attacks find what was planted, find nothing where there is nothing, and say so for `crossover` too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.workload.generators.conftest import office_log

from clustertwin.core.durations import WEEK_S
from clustertwin.workload.generators import make
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.privacy import Attacks, attack
from clustertwin.workload.privacy.attack_score import AttackResult, AttackScore, detections, score_claims
from clustertwin.workload.privacy.attacked_log import attacked
from clustertwin.workload.privacy.job_attack import _moved, near_copies

pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def log() -> Jobs:
    return office_log()


@pytest.fixture(scope="module")
def copied(log: Jobs) -> Attacks:
    return attack(log, log)


@pytest.fixture(scope="module")
def strangers(log: Jobs) -> Attacks:
    """Another log of the same kind: it has nothing of the first one except its habits."""
    return attack(log, office_log(seed=77))


def test_the_auc_counts_pairs_within_a_stratum_only() -> None:
    scores, true = np.array([1.0, 2.0, 11.0, 12.0]), np.array([False, True, False, True])
    assert score_claims(scores, true, np.array([0, 0, 1, 1])).auc == 1
    assert score_claims(scores, true).auc == 0.75
    assert score_claims(np.zeros(4), true).auc == 0.5


def test_a_stratum_without_false_claims_says_nothing() -> None:
    result = score_claims(np.array([1.0, 2.0]), np.array([True, True]))
    assert (result.auc, result.true_claims) == (0.5, 0)


@pytest.mark.medium
def test_the_auc_agrees_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    true = rng.random(300) < 0.4
    scores = np.round(rng.normal(size=300) + true, 1)
    assert score_claims(scores, true).auc == pytest.approx(metrics.roc_auc_score(true, scores))


def test_detections_are_counted_at_one_false_claim_in_a_hundred() -> None:
    true = np.repeat([True, False], [100, 100])
    scores = np.concatenate([np.repeat([5.0, 1.0], [30, 70]), np.append([3.0, 3.0], np.zeros(98))])
    assert detections(scores, true) == pytest.approx(0.3)


def test_a_copied_log_gives_everything_away(copied: Attacks) -> None:
    assert copied.user_days.synthetic.auc > 0.99
    assert copied.user_days.synthetic.tpr_at_1pct_fpr > 0.5
    assert copied.single_jobs.synthetic.auc > 0.95
    assert copied.nearest_jobs.synthetic.auc > 0.95
    assert copied.user_names.synthetic.auc == 1
    assert copied.near_copies.share == 1
    assert copied.shifted_copies.weeks == 0
    assert copied.shifted_copies.share == 1


def test_a_log_of_other_people_gives_nothing_away(strangers: Attacks) -> None:
    assert strangers.user_days.synthetic.auc == pytest.approx(0.5, abs=0.05)
    assert strangers.single_jobs.synthetic.auc == pytest.approx(0.5, abs=0.05)
    assert strangers.nearest_jobs.synthetic.auc == pytest.approx(0.5, abs=0.05)
    assert strangers.near_copies.share < 0.1


def test_the_holdout_is_close_to_chance(copied: Attacks) -> None:
    assert copied.user_days.holdout.auc < 0.6
    assert copied.single_jobs.holdout.auc < 0.6


def test_a_copy_moved_by_three_weeks_is_found_and_moved_back(log: Jobs) -> None:
    result = attack(log, replace(log, epoch_s=log.epoch_s + 3 * WEEK_S))
    assert result.shifted_copies.weeks == -3
    assert result.shifted_copies.share > 0.9
    assert result.shifted_jobs.synthetic.auc > 0.95
    assert result.single_jobs.synthetic.auc < 0.7


def test_renamed_users_are_found_by_what_they_run(log: Jobs) -> None:
    result = attack(log, replace(log, user=log.user + 1000))
    assert result.user_names.synthetic.true_claims == 0
    assert result.user_days.synthetic.auc > 0.6


def test_names_that_are_published_are_counted(log: Jobs) -> None:
    named = replace(log, names={"user": tuple(f"u{i}" for i in range(9))})
    assert attack(named, named).names_published == 1
    assert attack(named, log).names_published == 0


def test_crossover_is_reported_as_the_leak_that_it_is(log: Jobs) -> None:
    fitted = make("crossover").fit(log, np.random.default_rng(0))
    result = attack(log, fitted.sample(len(log), np.random.default_rng(1)))
    assert result.user_days.synthetic.auc > 0.9
    assert result.user_days.synthetic.auc > result.user_days.holdout.auc + 0.3
    assert result.single_jobs.synthetic.auc > 0.8


@pytest.mark.parametrize("jobs", [40, 200])
def test_a_log_of_one_user_or_of_one_hour_is_attacked_as_far_as_possible(jobs: int) -> None:
    short = Jobs.build(np.arange(jobs) * 10.0, np.full(jobs, 60.0), cpus=np.ones(jobs), user=np.zeros(jobs))
    result = attack(short, short)
    assert result.user_days.synthetic.true_claims == 0
    assert result.single_jobs.synthetic.true_claims == 0
    assert result.near_copies.share == 1


def test_a_copy_of_a_one_week_log_betrays_user_days() -> None:
    week = office_log()
    week = week.take(week.submit_s < week.submit_s[0] + WEEK_S)
    found = attack(week, week).user_days.synthetic
    assert found.true_claims > 0
    assert found.auc > 0.9


def test_an_attack_that_could_not_be_tried_has_no_figures() -> None:
    nothing = AttackResult(AttackScore(), AttackScore(0.7, 0.1, 5))
    assert (str(nothing.synthetic), nothing.found, str(nothing.holdout)) == ("not measured", "", "0.700")


@pytest.mark.slow
def test_users_are_names_and_not_places() -> None:
    """Half of the users are asked about, the other half are strangers; the published log was made without either."""
    log, other = office_log(days=28, users=40), office_log(days=28, users=20, seed=9)
    published = replace(other, user=3 * other.user)
    found = [
        attack(log.take(log.user % 2 == half), published, unseen=log.take(log.user % 2 != half)).single_jobs
        for half in (0, 1)
    ]
    assert np.mean([result.synthetic.auc for result in found]) == pytest.approx(0.5, abs=0.04)


def test_a_job_of_another_size_by_another_user_is_no_near_copy() -> None:
    """A published user with a higher code than all real ones was taken for a real user with a larger job."""
    real = Jobs.build([0.0, 60.0], [60.0, 60.0], cpus=[2, 2], user=[0, 0])
    published = Jobs.build([0.0, 60.0], [60.0, 60.0], cpus=[1, 1], user=[1, 2])
    found = near_copies(*attacked(real, published), np.random.default_rng(0))
    assert (found.share, found.share_same_user) == (0, 0)


def test_a_false_claim_lies_within_the_time_of_the_log() -> None:
    """In a log of 15 days a third of them lay after its end: any log of the same days had an AUC far above 0.5."""
    log = Jobs.build(np.arange(360) * 3600.0, np.full(360, 60.0), cpus=np.ones(360))
    (real,) = attacked(log)
    moved = _moved(real, real, np.random.default_rng(0))
    assert (moved.at_s >= 0).all()
    assert (moved.at_s <= real.at_s.max()).all()
    assert set(np.abs(moved.at_s - real.at_s).tolist()) == {WEEK_S, 2 * WEEK_S}
