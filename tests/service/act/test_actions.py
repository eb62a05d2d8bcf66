"""Actions: approved once, done once, refused when forged, stale or late, and completed after a kill -9."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from tests.service.act.paper_slurm import START_S, PaperSlurm

from clustertwin.core.errors import SettingsError
from clustertwin.core.job_health import ClusterHealth, JobHealth
from clustertwin.service.act.action_journal import ActionPlan, ActionRecord, ApprovalRefused, Journal
from clustertwin.service.act.evidence_store import EvidenceStore, lasting
from clustertwin.service.act.execution import Executor
from clustertwin.service.act.hand import Hand
from clustertwin.service.act.hand_settings import HandSettings
from clustertwin.service.act.savings import (
    CHECK_S,
    future_overruns,
    measure_action,
    middle_of,
    overruns,
    read_overruns,
    rows_by,
    week,
)
from clustertwin.service.act.slurm_commands import check_job, read_facts
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, ProcessEvidence

NOW_S = START_S + 600
EVENT = Event("ab12", (("n1", (0, 1)),), ("42",), "ada", int(NOW_S) - 60, int(NOW_S), None, 9.0, "peers", "m")
RULE = '[[rule]]\nname = "hung"\ncauses = ["stopped"]\naction = "cancel"\nmode = "{mode}"\nfor = "1 min"\n'


@pytest.fixture
def slurm() -> PaperSlurm:
    return PaperSlurm()


@pytest.fixture
def store(tmp_path: Path):
    store = Store(tmp_path / "state.sqlite")
    store.write([(EVENT, None)])
    yield store
    store.close()


@pytest.fixture
def journal(store: Store) -> Journal:
    return Journal(store.database)


@pytest.fixture
def executor(tmp_path, journal, slurm) -> Executor:
    return Executor(tmp_path, journal, slurm, sleep=lambda _: None)


def plan_of(slurm: PaperSlurm, **values) -> ActionPlan:
    plan = ActionPlan(read_facts("42", slurm), "stopped", "Rank 3 of 8 is stopped.", 0.99, "ask", "TERM", 0.0)
    return replace(plan, **{"reserve_s": 5400.0, **values})


def propose(journal: Journal, slurm: PaperSlurm, verb: str = "cancel") -> ActionRecord:
    action = journal.propose("ab12", verb, "hung", plan_of(slurm), NOW_S)
    assert action is not None
    return action


def stopped(taken_s: float) -> JobEvidence:
    waits = [ProcessEvidence("n1", 9 + r, r, "waits-in-mpi", "R", mpi_call="MPI_Allreduce") for r in range(3)]
    return JobEvidence(
        "42", ("n1",), taken_s, 2.0, (*waits, ProcessEvidence("n1", 20, 3, "stopped", "T")), size=4, messages_pass=False
    )


def hand_of(tmp_path, store, slurm, mode: str) -> Hand:
    (tmp_path / "policy.toml").write_text(RULE.format(mode=mode))
    taken = iter(range(1000))
    settings = HandSettings(str(tmp_path / "policy.toml"), every_s=60.0)
    hand = Hand(tmp_path, store, settings, lambda job, owner, nodes: stopped(NOW_S + 60 * next(taken)), slurm)
    hand.executor = Executor(tmp_path, hand.journal, slurm, sleep=lambda _: None)
    return hand


def test_an_approved_action_is_done_once(journal, executor, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    assert executor.execute(action.id).state == "done"
    assert slurm.calls == ["scancel --signal=TERM --full 42"]
    assert executor.execute(action.id).state == "done"
    assert executor.recover() == []
    assert len(slurm.calls) == 1


def test_a_job_that_ignores_the_signal_is_killed_after_the_grace(journal, executor, slurm):
    slurm.deaf_to_term = True
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    executor.execute(action.id)
    assert slurm.calls == ["scancel --signal=TERM --full 42", "scancel 42"]


@pytest.mark.parametrize(
    ("verb", "command"),
    [
        ("hold", "scontrol hold 42"),
        ("requeue", "scontrol requeue 42"),
        ("suspend", "scontrol suspend 42"),
        ("drain", "scontrol update nodename=n1 state=drain reason=clustertwin {id}"),
        (
            "reserve",
            "scontrol create reservation reservationname=clustertwin_{id} starttime=now duration=90 users=root "
            "flags=maint,ignore_jobs nodes=n1",
        ),
    ],
)
def test_each_action_is_one_command_that_a_dry_run_shows_first(journal, executor, slurm, verb, command):
    if verb == "hold":
        slurm.state = "PENDING"
    action = propose(journal, slurm, verb)
    assert executor.dry_run(action) == [command.format(id=action.id)]
    assert slurm.calls == []
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    assert executor.execute(action.id).state == "done"
    assert slurm.calls == [command.format(id=action.id)]


def test_a_reservation_that_exists_is_not_made_again(tmp_path, journal, executor, slurm):
    action = propose(journal, slurm, "reserve")
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    journal.begin(action.id, NOW_S)
    journal.begin_step(action.id, 1)
    slurm.reservations.append(f"clustertwin_{action.id}")  # made before a kill -9
    (done,) = executor.recover()
    assert (done.state, done.result) == ("done", "after a restart: Slurm shows that it was done")
    assert slurm.calls == []


@pytest.mark.parametrize("verb", ["drain", "reserve"])
def test_the_nodes_of_a_job_that_ended_meanwhile_are_left_alone(journal, executor, slurm, verb):
    action = propose(journal, slurm, verb)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    slurm.state = "COMPLETED"
    done = executor.execute(action.id)
    assert (done.state, done.result) == ("failed", "nothing was done: the job has ended")
    assert slurm.calls == []


def test_a_node_that_someone_has_drained_keeps_its_reason(journal, executor, slurm):
    action = propose(journal, slurm, "drain")
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    slurm.node_state, slurm.node_reason = "MIXED+DRAIN", "bad fan"
    assert executor.execute(action.id).result == "nothing was done: its nodes are drained already"
    assert slurm.node_reason == "bad fan"


def test_an_action_that_was_approved_before_a_kill_is_done_after_it(tmp_path, journal, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    executor = Executor(tmp_path, journal, slurm, sleep=lambda _: None, clock=lambda: NOW_S + 5)
    assert [done.state for done in executor.recover()] == ["done"]
    assert len(slurm.calls) == 1


def test_an_approval_does_not_act_a_day_later(tmp_path, journal, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    executor = Executor(tmp_path, journal, slurm, sleep=lambda _: None, clock=lambda: NOW_S + 86_400)
    assert [done.result for done in executor.recover()] == ["it was approved too long ago"]
    assert slurm.calls == []


def test_an_action_that_nobody_approved_is_not_done(journal, executor, slurm):
    action = propose(journal, slurm)
    with pytest.raises(ApprovalRefused, match="is proposed"):
        executor.execute(action.id)
    assert slurm.calls == []


def test_a_forged_code_is_refused(journal, slurm):
    action = propose(journal, slurm)
    with pytest.raises(ApprovalRefused, match="load the page again"):
        journal.approve(action.id, "0" * 64, "eve", NOW_S)
    assert journal.action(action.id).state == "proposed"


def test_a_code_of_another_action_is_refused(journal, slurm):
    cancel, drain = propose(journal, slurm), propose(journal, slurm, "drain")
    with pytest.raises(ApprovalRefused):
        journal.approve(drain.id, journal.code(cancel), "eve", NOW_S)


def test_a_replayed_approval_is_refused(journal, executor, slurm):
    action = propose(journal, slurm)
    code = journal.code(action)
    journal.approve(action.id, code, "ada", NOW_S)
    with pytest.raises(ApprovalRefused, match="cannot be approved again"):
        journal.approve(action.id, code, "ada", NOW_S)


def test_an_approval_of_an_old_page_is_refused(journal, slurm):
    action = propose(journal, slurm)
    with pytest.raises(ApprovalRefused, match="has expired"):
        journal.approve(action.id, journal.code(action), "ada", NOW_S + 3601)
    assert journal.action(action.id).state == "expired"


def test_a_job_that_ended_meanwhile_is_left_alone(journal, executor, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    slurm.state = "COMPLETED"
    done = executor.execute(action.id)
    assert (done.state, done.result) == ("failed", "nothing was done: the job has ended or changed")
    assert slurm.calls == []


def test_another_run_of_the_same_job_is_left_alone(journal, executor, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    slurm.restarts, slurm.start_s = 1, START_S + 500
    assert executor.execute(action.id).state == "failed"
    assert slurm.calls == []


def test_a_slurm_that_does_not_answer_is_one_sentence(journal, executor, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    slurm.silent = True
    done = executor.execute(action.id)
    assert (done.state, done.result) == (
        "failed",
        "nothing was done: Slurm does not answer: scontrol took longer than 20 s",
    )


@pytest.mark.parametrize("job", ["--help", "42;reboot", "42 43", "", "job", "4" * 20])
def test_an_id_that_slurm_does_not_write_is_no_argument(job):
    with pytest.raises(SettingsError, match="is not the id of a Slurm job"):
        check_job(job)


def test_evidence_that_lasts_makes_a_proposal_and_a_person_decides(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "ask")
    for minute in range(3):
        hand.turn([EVENT], NOW_S + 60 * minute)
        assert not hand.problem
    (action,) = hand.journal.actions()
    assert (action.state, action.verb, action.plan.sentence[:19]) == ("proposed", "cancel", "Rank 3 of 4 is stop")
    assert slurm.calls == []
    assert action.plan.promised_node_hours > 0


def test_auto_acts_once_for_an_event(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "auto")
    for minute in range(2):
        hand.turn([EVENT], NOW_S + 60 * minute)
    slurm.state = "RUNNING"  # as if the cancellation had no effect
    for minute in range(2, 5):
        hand.turn([EVENT], NOW_S + 60 * minute)
    assert slurm.calls == ["scancel --signal=TERM --full 42"]
    assert [action.state for action in hand.journal.actions()] == ["done"]


def test_advice_is_never_done(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "advise")
    for minute in range(3):
        hand.turn([EVENT], NOW_S + 60 * minute)
    (action,) = hand.journal.actions()
    assert action.state == "advised"
    with pytest.raises(ApprovalRefused):
        hand.journal.approve(action.id, hand.journal.code(action), "ada", NOW_S)
    assert slurm.calls == []


def test_without_rules_there_is_evidence_and_no_proposal(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "auto")
    (tmp_path / "policy.toml").write_text("")
    for minute in range(3):
        hand.turn([EVENT], NOW_S + 60 * minute)
    assert len(hand.evidence.of("ab12")) == 3
    assert hand.journal.actions() == []


def test_a_wrong_policy_does_nothing_and_says_so(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "auto")
    (tmp_path / "policy.toml").write_text(RULE.format(mode="auto") + "surre = 1\n")
    for minute in range(3):
        hand.turn([EVENT], NOW_S + 60 * minute)
    assert "there is no setting surre" in hand.problem
    assert slurm.calls == []


def test_an_event_whose_nodes_are_not_the_jobs_is_not_believed(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "auto")
    forged = replace(EVENT, places=(("n9", (0,)),))
    for minute in range(3):
        hand.turn([forged], NOW_S + 60 * minute)
    assert "Slurm runs job 42 elsewhere" in hand.problem
    assert slurm.calls == []
    assert hand.evidence.of("ab12") == []


def test_a_dismissed_action_suspends_its_rule_until_it_is_resumed(journal, slurm):
    action = propose(journal, slurm)
    journal.dismiss(action.id, "ada", NOW_S)
    assert "hung" in journal.suspended_rules()
    journal.resume_rule("hung", "ada", NOW_S)
    assert journal.suspended_rules() == {}


def test_a_dismissed_event_suspends_the_rule_that_acted_on_it(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "auto")
    for minute in range(2):
        hand.turn([EVENT], NOW_S + 60 * minute)
    store.vet(["ab12"], "dismissed", who="ada", now_s=NOW_S)
    hand.turn([], NOW_S + 200)
    assert "was dismissed after action" in hand.journal.suspended_rules()["hung"]
    (row,) = rows_by(hand.journal, week, lambda event: store.event(event).verdict == "dismissed")
    assert (row.done, row.false) == (1, 1)


def test_each_step_is_in_the_audit_log(store, journal, executor, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    executor.execute(action.id)
    steps = [(entry.action, entry.who) for entry in reversed(store.audit(action.id))]
    assert steps == [
        ("action proposed", "rule hung"),
        ("action approved", "ada"),
        ("action running", "ada"),
        ("action done", "ada"),
    ]


def test_a_finding_lasts_from_its_first_evidence(store):
    evidence = EvidenceStore(store.database)
    for minute in range(20):
        evidence.add("ab12", stopped(NOW_S + 60 * minute))
    stored = evidence.of("ab12")
    assert len(stored) == 8
    latest = lasting(stored)
    assert latest is not None
    assert latest[1] == 19 * 60 + 2


def test_the_book_compares_the_end_of_a_job_with_its_limit(journal, executor, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    done = executor.execute(action.id)
    assert measure_action(done, 0.0, slurm) is None  # sacct does not know the end yet
    slurm.end_s = START_S + 900
    assert measure_action(done, 30.0, slurm) == pytest.approx((3600 + 30 - 900) / 3600)


def test_an_advice_is_compared_with_the_time_that_the_job_went_on(journal, slurm):
    action = journal.propose("ab12", "cancel", "hung", plan_of(slurm, mode="advise"), NOW_S)
    assert action is not None
    slurm.end_s = NOW_S + 1800
    assert measure_action(action, 0.0, slurm) == pytest.approx(0.5)


def test_the_overruns_are_those_of_jobs_that_timed_out():
    seen = overruns("TIMEOUT|75|1\nTIMEOUT|150|2\nTIMEOUT|60|1\nCOMPLETED|500|1\n")
    assert seen == (0.0, 15.0, 30.0)
    assert middle_of(seen) == 15.0


@pytest.mark.parametrize("count", [1, 3, 10, 100])
def test_the_interval_of_the_next_overrun_holds_as_often_as_it_says(count):
    rng = random.Random(18)
    held = 0
    for _ in range(500):
        *seen, following = (rng.uniform(0.0, CHECK_S) for _ in range(count + 1))
        drawn = future_overruns(tuple(sorted(seen)))
        held += drawn[9] <= following <= drawn[90]
    assert held / 500 > 0.76  # 80 %, and 2.2 standard errors less


def test_a_promise_holds_from_the_time_at_which_a_person_allows_the_action(journal, slurm):
    plan = plan_of(slurm, promised_node_hours=2.0, promised_low=1.5, promised_high=2.5)
    action = journal.propose("ab12", "cancel", "hung", plan, NOW_S)
    assert action is not None
    assert action.promise == (2.0, 1.5, 2.5)
    journal.approve(action.id, journal.code(action), "ada", NOW_S + 1700)
    assert journal.begin(action.id, NOW_S + 1800).promise == (1.5, 1.0, 2.0)


def test_without_a_job_that_timed_out_the_overrun_is_that_of_slurms_checks():
    assert read_overruns(lambda arguments: "COMPLETED|50|2\n")[-1] == 30.0


def test_the_overruns_are_read_without_a_filter_that_sacct_ignores():
    asked = []

    def run(arguments):
        asked.append(" ".join(arguments))
        return "TIMEOUT|142|2\nCOMPLETED|50|2\n"

    assert read_overruns(run) == (22.0,)
    assert "--state" not in asked[0]


def test_outcomes_listen_to_other_events_that_are_open(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "ask")
    node = replace(EVENT, id="node", jobs=(), places=(("n7", (0,)),))
    hand.turn([EVENT, node], NOW_S)
    other = replace(EVENT, id="cd34")
    assert hand.known_health(other) == ClusterHealth({"42": JobHealth("42", True, 0.99)}, frozenset({"n7"}))
    assert hand.known_health(EVENT).jobs == {}
    assert hand.hanging_jobs() == {"42": JobHealth("42", True, 0.99)}
    listening, hand.settings = hand.settings, replace(hand.settings, listen=False)
    assert hand.known_health(other) == ClusterHealth()
    hand.settings = listening
    hand.turn([], NOW_S + 5)
    assert hand.known_health(other) == ClusterHealth()


KILLED = """
    import os, sys
    from pathlib import Path
    sys.path[:0] = {path!r}
    from tests.service.act.paper_slurm import PaperSlurm
    from clustertwin.service.act.execution import Executor
    from clustertwin.service.act.action_journal import Journal
    from clustertwin.service.store.event_store import Store
    home = Path({home!r})
    class Slurm(PaperSlurm):
        def __call__(self, arguments):
            changes = arguments[0] == "scancel"
            if changes and {when!r} == "before": os.kill(os.getpid(), 9)
            text = super().__call__(arguments)
            if changes:
                (home / "calls").open("a").write(" ".join(arguments) + chr(10))
                if {when!r} == "after": os.kill(os.getpid(), 9)
            return text
    Executor(home, Journal(Store(home / "state.sqlite").database), Slurm()).execute({id!r})
"""


@pytest.mark.medium
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_between_decision_and_action_neither_repeats_nor_loses_it(tmp_path, journal, slurm, when):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    code = textwrap.dedent(KILLED).format(path=sys.path, home=str(tmp_path), when=when, id=action.id)
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert journal.action(action.id).state == "running"
    if when == "after":
        slurm.state = "CANCELLED"  # the killed process had its own paper
    (recovered,) = Executor(tmp_path, journal, slurm, sleep=lambda _: None).recover()
    assert recovered.state == "done"
    # The signal was announced in the journal, so it is not sent again. What remains is the final command.
    assert slurm.calls == (["scancel 42"] if when == "before" else [])
    assert Executor(tmp_path, journal, slurm).recover() == []
    assert os.path.exists(tmp_path / "calls") == (when == "after")
