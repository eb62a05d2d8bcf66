"""A Slurm that hangs, answers garbage or changes its mind: one sentence, nothing done, and another try."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.service.act.paper_slurm import PaperSlurm
from tests.service.act.test_actions import (
    EVENT,
    NOW_S,
    RULE,
    executor,
    hand_of,
    journal,
    propose,
    slurm,
    stopped,
    store,
)

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.service.act import slurm_commands
from clustertwin.service.act.action_journal import ApprovalRefused
from clustertwin.service.act.counterfactual import parse_cpus
from clustertwin.service.act.execution import Executor
from clustertwin.service.act.hand import watch
from clustertwin.service.act.policy import parse_policy, read_policy
from clustertwin.service.act.savings import measure_action, overruns
from clustertwin.service.act.slurm_commands import mark_of, run_command
from clustertwin.service.live.problems import problems
from clustertwin.service.live.snapshot import ServiceState

__all__ = ("executor", "journal", "slurm", "store")  # fixtures
GARBAGE = ("", "\x00\ufffd\x1b[2J", "|" * 200, "a/b/c/d", "²|²|²", "9999-99-99T99:99:99|9999-99-99T99|x|²", "9" * 5000)


class Garbage(PaperSlurm):
    """Answers one of its programs, or the question about the job, with something else."""

    program, text = "", ""

    def __call__(self, arguments: Sequence[str]) -> str:
        program = "facts" if mark_of(arguments) else arguments[0]
        return self.text if program == self.program else super().__call__(arguments)


def script(directory: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (directory / "scontrol").write_text(f"#!/bin/sh\n{text}\n")
    (directory / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_a_job_name_in_another_encoding_is_text(tmp_path, monkeypatch):
    script(tmp_path, monkeypatch, r"printf 'JobName=\377\376 JobState=RUNNING'")
    assert "JobState=RUNNING" in run_command(["scontrol", "show", "job", "42"])


@pytest.mark.medium
def test_a_command_that_hangs_is_one_sentence(tmp_path, monkeypatch):
    script(tmp_path, monkeypatch, "sleep 60 & wait")
    monkeypatch.setattr(slurm_commands, "TIMEOUT_S", 0.3)
    with pytest.raises(SourceError, match="Slurm does not answer: scontrol took longer than"):
        run_command(["scontrol", "show", "job", "42"])


def test_a_command_that_prints_without_end_is_one_sentence(tmp_path, monkeypatch):
    """Gigabytes of it were kept until the time was over."""
    script(tmp_path, monkeypatch, "exec yes")
    monkeypatch.setattr(slurm_commands, "MOST_BYTES", 1_000_000)
    with pytest.raises(SourceError, match="Slurm does not answer: scontrol: prints more than 1,000,000 bytes"):
        run_command(["scontrol", "show", "job", "42"])


@pytest.mark.medium
@pytest.mark.parametrize("program", ["squeue", "sinfo", "sacct"])
@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_about_the_queue_keeps_the_evidence(tmp_path, store, program, text):
    garbage = Garbage()
    garbage.program, garbage.text = program, text
    hand = hand_of(tmp_path, store, garbage, "ask")
    hand.turn([EVENT], NOW_S)
    assert len(hand.evidence.of("ab12")) == 1
    if program != "sacct" and (program, text) != ("squeue", ""):  # a queue without the job is an answer
        assert hand.problem.startswith("no outcomes of job 42: ")


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("facts", "Slurm's answer about job 42 cannot be read"),
        ("scontrol", "event ab12 is on n1, and Slurm runs job 42 elsewhere: nothing is done"),
    ],
)
@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_about_the_job_does_nothing(tmp_path, store, program, sentence, text):
    garbage = Garbage()
    garbage.program, garbage.text = program, text
    hand = hand_of(tmp_path, store, garbage, "auto")
    for minute in range(3):
        hand.turn([EVENT], NOW_S + 60 * minute)
    assert hand.problem == sentence
    assert garbage.calls == []


@pytest.mark.parametrize("text", GARBAGE)
def test_numbers_that_are_none_are_not_read(text, journal, slurm):
    assert overruns(f"TIMEOUT|{text}|{text}\n") == ()
    assert measure_action(propose(journal, slurm), 0.0, lambda arguments: text) is None
    with pytest.raises(SourceError, match="Slurm's answer about its CPUs cannot be read"):
        parse_cpus(text)


def test_a_problem_is_shown_until_a_look_succeeds(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "ask")
    slurm.silent = True
    hand.turn([EVENT], NOW_S)
    hand.turn([EVENT], NOW_S + 5)  # not due
    assert "Slurm does not answer" in hand.problem
    slurm.silent = False
    hand.turn([EVENT], NOW_S + 70)
    assert hand.problem == ""


def test_an_event_is_looked_at_again_after_the_clock_was_set_back(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "ask")
    hand.turn([EVENT], NOW_S)
    hand.turn([EVENT], NOW_S - 3600)
    assert len(hand.evidence.of("ab12")) == 2


@pytest.mark.medium
@pytest.mark.parametrize("text", ["{", "{}", "\x00", "[]"])
@pytest.mark.parametrize("column", ["document", "outcomes"])
def test_a_look_that_is_damaged_on_the_disk_leaves_the_others(tmp_path, store, slurm, column, text):
    hand = hand_of(tmp_path, store, slurm, "ask")
    hand.turn([EVENT], NOW_S)
    hand.turn([EVENT], NOW_S + 70)
    with store.database.transaction() as connection:
        connection.execute(f"UPDATE evidence SET {column} = ? WHERE id = 1", (text,))
    assert [entry.id for entry in hand.evidence.of("ab12")][:1] == [2]


def test_an_event_that_has_closed_is_forgotten(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "ask")
    hand.turn([EVENT], NOW_S)
    hand.turn([], NOW_S + 5)
    assert hand._looked_s == {}


def test_a_job_that_ended_is_no_problem_of_the_site(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "auto")
    slurm.state = "COMPLETED"
    for minute in range(3):
        hand.turn([EVENT], NOW_S + 60 * minute)
    assert (hand.problem, slurm.calls, hand.evidence.of("ab12")) == ("", [], [])


def test_the_thread_survives_what_nobody_expected_and_the_pages_say_so(tmp_path, store, slurm, monkeypatch):
    hand, state, stop = hand_of(tmp_path, store, slurm, "ask"), ServiceState(tmp_path, store), threading.Event()
    turns = []

    def turn(events, now_s, suspects):
        turns.append(now_s)
        if len(turns) == 2:
            stop.set()
        raise ZeroDivisionError

    monkeypatch.setattr(hand, "turn", turn)
    watch(hand, state, stop, check_s=0.001)
    assert len(turns) == 2
    assert problems(state) == ("evidence and actions: unexpected ZeroDivisionError; nothing is done",)


def test_a_page_that_is_stale_because_the_job_works_again_cannot_approve(tmp_path, store, slurm):
    hand = hand_of(tmp_path, store, slurm, "ask")
    for minute in range(2):
        hand.turn([EVENT], NOW_S + 60 * minute)
    (action,) = hand.journal.actions()
    code = hand.journal.code(action)
    works = replace(stopped(NOW_S + 120), messages_pass=True)
    works = replace(works, processes=tuple(replace(p, does="waits-in-mpi", state="R") for p in works.processes))
    hand._take = lambda job, owner, nodes: works
    hand.turn([EVENT], NOW_S + 180)
    with pytest.raises(ApprovalRefused, match="is expired"):
        hand.journal.approve(action.id, code, "ada", NOW_S + 181)
    assert hand.journal.action(action.id).result == "the finding has changed: the job works"
    assert "between the ranks" not in str(store.audit())  # evidence is not for everyone who may read
    assert slurm.calls == []


def test_a_kill_before_the_first_command_does_not_claim_what_the_job_did_itself(tmp_path, journal, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    journal.begin(action.id, NOW_S)  # kill -9 here
    slurm.state = "COMPLETED"
    (done,) = Executor(tmp_path, journal, slurm, sleep=lambda _: None).recover()
    assert (done.state, done.result) == ("failed", "after a restart: nothing was done: the job has ended or changed")


def test_another_job_with_the_same_id_is_left_alone(journal, executor, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    slurm.start_s += 86_400  # ids are used again after MaxJobId
    assert executor.execute(action.id).state == "failed"
    assert slurm.calls == []


def test_a_slurm_that_falls_silent_after_the_signal_says_what_was_begun(journal, executor, slurm):
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    change = slurm._change

    def signal_and_fall_silent(arguments):
        slurm.silent = True
        if len(slurm.calls) > 1:
            change(arguments)

    slurm._change = signal_and_fall_silent
    done = executor.execute(action.id)
    assert done.state == "failed"
    assert done.result.startswith("scancel --signal=TERM --full 42 was begun: Slurm does not answer")
    assert slurm.calls == ["scancel --signal=TERM --full 42"]


def test_a_policy_that_everyone_can_write_is_refused(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(RULE.format(mode="auto"))
    path.chmod(0o646)
    with pytest.raises(SettingsError, match="everyone can write it"):
        read_policy(path)


@pytest.mark.parametrize("line", ["partitions = [1]", "accounts = [[]]", "causes = [2]"])
def test_a_list_of_something_else_is_one_sentence(line):
    text = RULE.format(mode="ask").replace('causes = ["stopped"]\n', "") + line
    with pytest.raises(SettingsError, match="must be a list of texts"):
        parse_policy(text)
