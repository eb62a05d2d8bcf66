"""How often sacct is asked for the savings of actions: seldom, in turn, and not about what cannot be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.service.act.paper_slurm import PaperSlurm
from tests.service.act.test_actions import EVENT, NOW_S, hand_of, journal, plan_of, store

from clustertwin.core.errors import SourceError
from clustertwin.service.act.action_journal import ActionRecord, Journal
from clustertwin.service.act.savings import GIVE_UP_S, LONGEST_S, SavingsMeter

__all__ = ("journal", "store")  # fixtures


class CountedSlurm(PaperSlurm):
    """Counts the questions to sacct. `ended` has the jobs that it knows to have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.ended: set[str] = set()
        self.no_accounting = False

    def __call__(self, arguments: Sequence[str]) -> str:
        if arguments[0] != "sacct":
            return super().__call__(arguments)
        self.asked.append(arguments[-1])
        if self.no_accounting:
            raise SourceError("sacct failed: Slurm accounting storage is disabled")
        self.end_s = self.start_s + 900 if arguments[-1].removeprefix("--jobs=") in self.ended else 0.0
        return super().__call__(arguments)


@pytest.fixture
def slurm() -> CountedSlurm:
    return CountedSlurm()


def advise(journal: Journal, slurm: PaperSlurm, job: str, at_s: float = NOW_S) -> ActionRecord:
    plan = plan_of(slurm, mode="advise")
    plan = replace(plan, facts=replace(plan.facts, job=job, name=job))
    action = journal.propose(f"e{job}", "cancel", "hung", plan, at_s)
    assert action is not None
    return action


def test_a_job_that_runs_on_is_asked_for_ever_less_often(tmp_path, store, journal, slurm):
    """It was asked about every five seconds, each time after the jobs of seven days."""
    hand = hand_of(tmp_path, store, slurm, "advise")
    advise(journal, slurm, "42")
    for second in range(0, 500, 5):
        hand.turn([], NOW_S + second)
    assert slurm.asked == ["--jobs=42"]
    for second in range(600, 86_400, 60):
        hand.meter.turn(NOW_S + second)
    assert len(slurm.asked) == 9  # after 10, 30, 70, 150, 310 and 630 min, and then every six hours


def test_a_job_that_has_ended_is_measured_and_not_asked_for_again(journal, slurm):
    meter, action = SavingsMeter(journal, slurm), advise(journal, slurm, "42")
    slurm.ended = {"42"}
    for second in range(0, 3600, 5):
        meter.turn(NOW_S + second)
    assert slurm.asked == ["--jobs=42"]
    assert journal.action(action.id).measured_node_hours == pytest.approx(300 / 3600)


def test_looks_at_open_events_read_the_overruns_once_an_hour(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "auto")
    (tmp_path / "policy.toml").write_text("")
    for minute in range(10):
        hand.turn([EVENT], NOW_S + 60 * minute)
    assert [question for question in slurm.asked if "TimelimitRaw" in question] == slurm.asked[:1] == slurm.asked


def test_jobs_that_sacct_does_not_know_do_not_keep_others_from_being_measured(journal, slurm):
    meter = SavingsMeter(journal, slurm)
    measurable = advise(journal, slurm, "7", NOW_S - 100)
    for number in range(11):
        advise(journal, slurm, str(100 + number))
    slurm.ended = {"7"}
    for second in range(0, 60, 5):
        meter.turn(NOW_S + second)
    assert journal.action(measurable.id).measured_node_hours is not None
    assert len(slurm.asked) == 12


def test_a_cancelled_job_without_a_limit_is_not_asked_for(journal, slurm):
    plan = plan_of(slurm)
    plan = replace(plan, facts=replace(plan.facts, limit_s=None))
    action = journal.propose("ab12", "cancel", "hung", plan, NOW_S)
    assert action is not None
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    journal.begin(action.id, NOW_S)
    journal.finish(action.id, True, "done", NOW_S)
    SavingsMeter(journal, slurm).turn(NOW_S)
    assert slurm.asked == []


def test_after_a_month_sacct_is_not_asked_any_more(journal, slurm):
    meter = SavingsMeter(journal, slurm)
    advise(journal, slurm, "42")
    meter.turn(NOW_S + GIVE_UP_S + 1)
    assert slurm.asked == []


def test_a_clock_that_was_set_back_does_not_stop_the_questions(journal, slurm):
    meter = SavingsMeter(journal, slurm)
    advise(journal, slurm, "42")
    meter.turn(NOW_S)
    meter.turn(NOW_S - LONGEST_S)
    assert len(slurm.asked) == 2


def test_an_accounting_that_fails_is_a_problem_until_it_answers(tmp_path, store, journal, slurm):
    hand = hand_of(tmp_path, store, slurm, "ask")
    advise(journal, slurm, "42")
    slurm.no_accounting = True
    for second in range(0, 100, 5):
        hand.turn([], NOW_S + second)
        assert hand.problem == "sacct failed: Slurm accounting storage is disabled"
    assert len(slurm.asked) == 1
    slurm.no_accounting = False
    hand.turn([], NOW_S + 700)
    assert hand.problem == ""
