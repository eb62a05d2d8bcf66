from dataclasses import replace

import pytest

from clustertwin.telemetry.learning.duel.golden_set import Detection, detect
from clustertwin.telemetry.learning.duel.verdict_of_duel import Contestant, Rule, choose
from clustertwin.telemetry.learning.night.challengers import Training, plan

CHAMPION = Contestant("champion", 0.010, 0.001, Detection({"a": 0.9, "b": 0.9}, 0.001, "x"))
BETTER = Contestant("better", 0.008, 0.001, Detection({"a": 0.9, "b": 0.9}, 0.001, "x"))
BLIND = Contestant("blind", 0.001, 0.001, Detection({"a": 1.0, "b": 0.3}, 0.001, "x"))
WORSE = replace(BETTER, name="worse", error=0.012)


def test_the_smallest_error_wins():
    choice = choose(CHAMPION, [WORSE, BETTER])
    assert (choice.winner, choice.refused) == ("better", {})
    assert "20.0 % below" in choice.because


def test_a_better_reconstruction_that_goes_blind_does_not_win():
    choice = choose(CHAMPION, [BLIND, BETTER])
    assert choice.winner == "better"
    assert "0.650 of the golden set" in choice.refused["blind"]


def test_who_alarms_at_everything_sees_nothing():
    blaring = Detection({"a": 1.0, "b": 1.0}, 0.3, "x")
    assert choose(replace(CHAMPION, detection=blaring), [BETTER], before=[blaring]).winner == "better"
    quiet = replace(blaring, false_alarms=0.001)
    assert choose(replace(CHAMPION, detection=quiet), [BETTER]).winner == "champion"
    assert choose(CHAMPION, [BETTER], before=[quiet]).winner == "champion"


def test_without_the_gate_it_does():
    assert choose(CHAMPION, [BLIND, BETTER], Rule(gate=False)).winner == "blind"


def test_after_a_change_that_a_person_knows_of_a_champion_that_floods_has_no_sight_to_defend():
    costly = replace(BETTER, name="costly", detection=Detection({"a": 0.8, "b": 0.75}, 0.001, "x"))
    flooding, best = replace(CHAMPION, false_alarms=0.2), Detection({"a": 1.0, "b": 1.0}, 0.001, "x")
    assert choose(flooding, [costly]).winner == "champion"  # who knows what it alarms at: nobody said
    assert choose(flooding, [costly], before=[best], changed=True).winner == "costly"
    assert "0.890 are needed" in choose(CHAMPION, [costly], changed=True).refused["costly"]  # it does not flood
    one_sided = replace(BLIND, detection=Detection({"a": 1.0, "b": 0.15}, 0.001, "x"))
    refused = choose(
        replace(flooding, detection=Detection({"a": 0.5, "b": 0.9}, 0.001, "x")), [one_sided], changed=True
    )
    assert "0.150 of b, 0.201 are needed" in refused.refused["blind"]


def test_one_kind_lost_is_enough_even_if_the_mean_holds():
    one_sided = replace(BLIND, detection=Detection({"a": 1.0, "b": 0.69}, 0.001, "x"))
    choice = choose(replace(CHAMPION, detection=Detection({"a": 0.8, "b": 0.9}, 0.001, "x")), [one_sided])
    assert choice.winner == "champion"
    assert "0.690 of b, 0.700 are needed" in choice.refused["blind"]


def test_the_champion_stays_if_nobody_is_better():
    assert choose(CHAMPION, [WORSE]).winner == "champion"
    assert choose(CHAMPION, [replace(BETTER, error=CHAMPION.error)]).winner == "champion"
    assert choose(CHAMPION, []).winner == "champion"


def test_the_same_weights_win_where_they_alarm_less_and_nobody_reconstructs_better():
    stale, anew = replace(CHAMPION, false_alarms=0.2), replace(CHAMPION, name="anew")
    choice = choose(stale, [WORSE, anew])
    assert choice.winner == "anew"
    assert "0.0010 of normal windows, not 0.2000" in choice.because
    assert choose(stale, [anew, BETTER]).winner == "better"


def test_many_nights_cannot_wear_detection_down():
    slightly = replace(BETTER, detection=Detection({"a": 0.892, "b": 0.892}, 0.0, "x"))
    assert choose(CHAMPION, [slightly]).winner == "better"
    assert choose(CHAMPION, [slightly], before=[Detection({"a": 0.92, "b": 0.93}, 0.0, "x")]).winner == "champion"


def test_a_flood_of_false_alarms_does_not_win():
    flood = replace(BETTER, false_alarms=0.05)
    assert "of normal windows" in choose(CHAMPION, [flood]).refused["better"]
    assert choose(replace(CHAMPION, false_alarms=0.06), [flood]).winner == "better"


def test_an_error_that_is_no_number_never_wins():
    broken = replace(BETTER, name="broken", error=float("nan"))
    assert choose(CHAMPION, [broken]).winner == "champion"
    assert choose(CHAMPION, [broken, WORSE, BETTER]).winner == "better"


def test_the_budget_goes_to_the_fast_first_and_what_they_leave_to_the_slow():
    speeds = {"fast": 1000.0, "slow": 100.0}
    names = [("slow", "scratch"), ("fast", "scratch")]
    epochs, without = plan(speeds, names, 1000, 70.0, Training(epochs=20))
    assert epochs == {"fast/scratch": 20, "slow/scratch": 5}
    assert without == {}


def test_detection_counts_what_alarms_of_each_kind(make_detector, small_golden):
    found = detect(make_detector(0), small_golden)
    assert set(found.recall) == {"bad-io", "hung-job"}
    assert found.recall["bad-io"] > 0.9
    assert found.false_alarms < 0.5
    assert found.golden == small_golden.sha256


def test_the_golden_set_is_the_same_every_time(small_golden):
    from tests.telemetry.learning.conftest import SMALL

    from clustertwin.telemetry.learning.duel.golden_set import labelled
    from clustertwin.telemetry.simulation.signature import read_signatures
    from clustertwin.telemetry.simulation.simulated_cluster import simulate

    def again(seed):
        settings = replace(SMALL, anomalies=("bad-io", "hung-job"), anomaly_ratio=0.6, start_s=0)
        return labelled(simulate(settings, read_signatures(), seed)).sha256

    assert again(1) == small_golden.sha256
    assert again(2) != small_golden.sha256


def test_where_no_job_is_known_the_golden_set_shows_none_and_is_another(make_detector, small_golden):
    bare = small_golden.without_jobs()
    assert all(not moment.jobs and (moment.job == -1).all() and moment.settled.all() for moment in bare.moments)
    assert bare.kinds == small_golden.kinds
    assert detect(make_detector(0), bare).golden == bare.sha256 != small_golden.sha256


@pytest.mark.parametrize("missing", ["a", "b"])
def test_a_kind_that_a_challenger_cannot_judge_counts_as_unseen(missing):
    recall = {kind: 0.9 for kind in ("a", "b") if kind != missing}
    assert choose(CHAMPION, [replace(BETTER, detection=Detection(recall, 0.0, "x"))]).winner == "champion"
