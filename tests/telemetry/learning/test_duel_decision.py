"""Who wins a duel, on cases small enough for paper; and the golden set."""

from dataclasses import replace

import pytest
from tests.telemetry.learning.conftest import SMALL

from clustertwin.telemetry.learning.duel.duel_decision import Contestant, DuelRule, decide
from clustertwin.telemetry.learning.duel.golden_set import (
    GoldenSetResult,
    evaluate_on_golden_set,
    labelled_golden_set,
)
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

CHAMPION = Contestant("champion", 0.010, 0.001, GoldenSetResult({"a": 0.9, "b": 0.9}, 0.001, "x"))
BETTER = Contestant("better", 0.008, 0.001, GoldenSetResult({"a": 0.9, "b": 0.9}, 0.001, "x"))
BLIND = Contestant("blind", 0.001, 0.001, GoldenSetResult({"a": 1.0, "b": 0.3}, 0.001, "x"))
WORSE = replace(BETTER, name="worse", error=0.012)


def test_the_smallest_error_wins():
    decision = decide(CHAMPION, [WORSE, BETTER])
    assert (decision.winner, decision.refused) == ("better", {})
    assert "20.0 % below" in decision.because


def test_the_gate_rejects_a_better_reconstruction_with_less_recall():
    decision = decide(CHAMPION, [BLIND, BETTER])
    assert decision.winner == "better"
    assert "golden-set recall 0.650" in decision.refused["blind"]


def test_recall_from_alarming_on_everything_does_not_count():
    noisy = GoldenSetResult({"a": 1.0, "b": 1.0}, 0.3, "x")
    assert decide(replace(CHAMPION, detection=noisy), [BETTER], baselines=[noisy]).winner == "better"
    quiet = replace(noisy, false_alarms=0.001)
    assert decide(replace(CHAMPION, detection=quiet), [BETTER]).winner == "champion"
    assert decide(CHAMPION, [BETTER], baselines=[quiet]).winner == "champion"


def test_without_the_gate_the_smallest_error_wins_even_with_less_recall():
    assert decide(CHAMPION, [BLIND, BETTER], DuelRule(gate=False)).winner == "blind"


def test_after_a_new_normal_the_recall_of_a_champion_with_many_alarms_counts_less():
    less = replace(BETTER, name="less", detection=GoldenSetResult({"a": 0.8, "b": 0.75}, 0.001, "x"))
    flooding, best = replace(CHAMPION, false_alarms=0.2), GoldenSetResult({"a": 1.0, "b": 1.0}, 0.001, "x")
    assert decide(flooding, [less]).winner == "champion"  # nobody said that these alarms are false
    assert decide(flooding, [less], baselines=[best], new_normal=True).winner == "less"
    # This champion does not alarm too often, so the usual recall is required.
    assert "required 0.890" in decide(CHAMPION, [less], new_normal=True).refused["less"]
    one_sided = replace(BLIND, detection=GoldenSetResult({"a": 1.0, "b": 0.15}, 0.001, "x"))
    decision = decide(
        replace(flooding, detection=GoldenSetResult({"a": 0.5, "b": 0.9}, 0.001, "x")), [one_sided], new_normal=True
    )
    assert "recall of b 0.150 is below the required 0.201" in decision.refused["blind"]


def test_a_large_loss_of_one_kind_is_enough_for_a_rejection():
    one_sided = replace(BLIND, detection=GoldenSetResult({"a": 1.0, "b": 0.69}, 0.001, "x"))
    decision = decide(replace(CHAMPION, detection=GoldenSetResult({"a": 0.8, "b": 0.9}, 0.001, "x")), [one_sided])
    assert decision.winner == "champion"
    assert "recall of b 0.690 is below the required 0.700" in decision.refused["blind"]


def test_the_champion_stays_if_no_challenger_is_better():
    assert decide(CHAMPION, [WORSE]).winner == "champion"
    assert decide(CHAMPION, [replace(BETTER, error=CHAMPION.error)]).winner == "champion"
    assert decide(CHAMPION, []).winner == "champion"


def test_the_same_weights_win_with_fewer_alarms_if_no_challenger_has_a_smaller_error():
    stale, recalibrated = replace(CHAMPION, false_alarms=0.2), replace(CHAMPION, name="recalibrated")
    decision = decide(stale, [WORSE, recalibrated])
    assert decision.winner == "recalibrated"
    assert "0.0010 of normal windows instead of 0.2000" in decision.because
    assert decide(stale, [recalibrated, BETTER]).winner == "better"


def test_small_losses_of_many_nights_do_not_add_up():
    slightly = replace(BETTER, detection=GoldenSetResult({"a": 0.892, "b": 0.892}, 0.0, "x"))
    assert decide(CHAMPION, [slightly]).winner == "better"
    best = GoldenSetResult({"a": 0.92, "b": 0.93}, 0.0, "x")
    assert decide(CHAMPION, [slightly], baselines=[best]).winner == "champion"


def test_too_many_false_alarms_are_a_reason_for_a_rejection():
    flood = replace(BETTER, false_alarms=0.05)
    assert "of normal windows" in decide(CHAMPION, [flood]).refused["better"]
    assert decide(replace(CHAMPION, false_alarms=0.06), [flood]).winner == "better"


def test_an_error_that_is_not_a_number_never_wins():
    broken = replace(BETTER, name="broken", error=float("nan"))
    assert decide(CHAMPION, [broken]).winner == "champion"
    assert decide(CHAMPION, [broken, WORSE, BETTER]).winner == "better"


@pytest.mark.parametrize("missing", ["a", "b"])
def test_a_kind_without_a_score_counts_as_not_detected(missing):
    recall = {kind: 0.9 for kind in ("a", "b") if kind != missing}
    assert decide(CHAMPION, [replace(BETTER, detection=GoldenSetResult(recall, 0.0, "x"))]).winner == "champion"


def test_recall_is_measured_for_each_kind(make_detector, small_golden):
    result = evaluate_on_golden_set(make_detector(0), small_golden)
    assert set(result.recall) == {"bad-io", "hung-job"}
    assert result.recall["bad-io"] > 0.9
    assert result.false_alarms < 0.5
    assert result.golden == small_golden.sha256


def test_the_golden_set_depends_only_on_its_seed(small_golden):
    def again(seed):
        settings = replace(SMALL, anomalies=("bad-io", "hung-job"), anomaly_ratio=0.6, start_s=0)
        return labelled_golden_set(simulate(settings, read_signatures(), seed)).sha256

    assert again(1) == small_golden.sha256
    assert again(2) != small_golden.sha256


def test_the_golden_set_without_jobs_is_another_set(make_detector, small_golden):
    bare = small_golden.without_jobs()
    assert all(not moment.jobs and (moment.job == -1).all() and moment.settled.all() for moment in bare.moments)
    assert bare.kinds == small_golden.kinds
    assert evaluate_on_golden_set(make_detector(0), bare).golden == bare.sha256 != small_golden.sha256
