"""Who wins a duel, on cases small enough for paper; and the golden set."""

from dataclasses import replace

import pytest
from tests.telemetry.learning.conftest import SMALL

from clustertwin.telemetry.learning.duel.duel_decision import Contestant, decide
from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
from clustertwin.telemetry.learning.duel.golden_set import (
    GoldenSetResult,
    evaluate_on_golden_set,
    labelled_golden_set,
)
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

SEES = GoldenSetResult({"a": 0.9, "b": 0.9}, 0.0, "x", paired=True)
CHAMPION = Contestant("champion", 0.010, 0.001, SEES, bits=800.0, false_events=0.0)
BETTER = replace(CHAMPION, name="better", error=0.008, bits=700.0)
WORSE = replace(CHAMPION, name="worse", error=0.012, bits=900.0)
BLIND = replace(CHAMPION, name="blind", error=0.001, bits=300.0, detection=replace(SEES, recall={"a": 1.0, "b": 0.3}))


def seeing(name, recall, false_events=0.0, bits=800.0):
    return Contestant(name, 0.01, 0.001, replace(SEES, recall={"a": recall}), bits=bits, false_events=false_events)


def test_of_equal_worth_the_shortest_description_wins():
    decision = decide(CHAMPION, [WORSE, BETTER])
    assert (decision.winner, decision.refused) == ("better", {})
    assert "700 bits per window instead of 800" in decision.because


def test_the_gate_rejects_a_shorter_description_that_sees_less():
    decision = decide(CHAMPION, [BLIND, BETTER])
    assert decision.winner == "better"
    assert "worth 0.65, at least 0.88 is needed" in decision.refused["blind"]


def test_sight_is_weighed_against_false_events_at_the_stated_rate():
    flooding = seeing("champion", 0.9, false_events=10.0)  # worth 0.4
    assert decide(flooding, [seeing("quiet", 0.5)]).winner == "quiet"
    assert decide(flooding, [seeing("quiet", 0.3)]).winner == "champion"
    assert decide(flooding, [seeing("quiet", 0.3)], DuelRule(false_event_cost=0.08)).winner == "quiet"
    assert decide(seeing("champion", 0.9), [seeing("loud", 1.0, false_events=4.0, bits=100.0)]).winner == "champion"


def test_of_two_that_are_worth_more_the_better_one_wins_whatever_their_bits():
    flooding = seeing("champion", 0.9, false_events=40.0)
    decision = decide(flooding, [seeing("blind", 0.2, bits=100.0), seeing("seeing", 0.8, bits=900.0)])
    assert decision.winner == "seeing"
    assert "sees 0.80 of the faults, 0.0 false events per node-day (worth 0.80)" in decision.because


def test_without_the_gate_the_smallest_error_wins_even_with_less_recall():
    assert decide(CHAMPION, [BLIND, BETTER], DuelRule(gate=False)).winner == "blind"


def test_the_champion_stays_if_no_challenger_is_better():
    assert decide(CHAMPION, [WORSE]).winner == "champion"
    assert decide(CHAMPION, [replace(CHAMPION, name="same")]).winner == "champion"
    assert decide(CHAMPION, []).winner == "champion"


def test_the_same_weights_win_with_fewer_false_events():
    stale, recalibrated = replace(CHAMPION, false_events=0.3), replace(CHAMPION, name="recalibrated")
    decision = decide(stale, [replace(WORSE, false_events=0.3), recalibrated])
    assert decision.winner == "recalibrated"
    assert "0.00 false events per node-day instead of 0.30" in decision.because


def test_small_losses_of_many_nights_do_not_add_up():
    slightly = seeing("slightly", 0.885, bits=700.0)
    assert decide(seeing("champion", 0.9), [slightly]).winner == "slightly"
    earlier = seeing("earlier", 0.95)
    assert decide(seeing("champion", 0.9), [slightly], baselines=[earlier]).winner == "champion"
    # On a site that has changed, the earlier champion is worth nothing: it holds nobody back.
    flooding = replace(earlier, false_events=20.0)
    assert decide(seeing("champion", 0.9), [slightly], baselines=[flooding]).winner == "slightly"


def test_a_figure_that_is_not_a_number_never_wins():
    broken = replace(BETTER, name="broken", bits=float("nan"))
    unmeasured = replace(BETTER, name="unmeasured", false_events=float("nan"))
    assert decide(CHAMPION, [broken, unmeasured]).winner == "champion"
    assert decide(CHAMPION, [broken, unmeasured, WORSE, BETTER]).winner == "better"


def test_in_unpaired_cases_recall_from_alarming_on_everything_does_not_count():
    assert GoldenSetResult({"a": 1.0}, 0.97, "x").informedness == pytest.approx(0.03)
    assert GoldenSetResult({"a": 0.8}, 0.97, "x", paired=True).informedness == 0.8


@pytest.mark.medium
def test_recall_is_measured_for_each_kind(make_detector, small_golden):
    result = evaluate_on_golden_set(make_detector(0), small_golden)
    assert set(result.recall) == {"bad-io", "hung-job"}
    assert result.recall["bad-io"] > 0.9
    assert result.false_alarms < 0.5
    assert result.golden == small_golden.sha256


@pytest.mark.medium
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
