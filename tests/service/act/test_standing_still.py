"""Waits of the hand have an end: locks, killed programs and the grace; and a thread that stands still is named."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from typing import ClassVar

import pytest
from tests.service import sample_state
from tests.service.act.test_actions import EVENT, NOW_S, executor, hand_of, journal, plan_of, propose, slurm, store

from clustertwin.core import foreign_files
from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.service.act import action_journal
from clustertwin.service.act.execution import Executor
from clustertwin.service.act.hand import watch
from clustertwin.service.act.policy import parse_policy
from clustertwin.service.live.problems import HAND_STANDS_S, MOST, problems
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.outgoing import service_metrics
from clustertwin.telemetry.diagnosis.evidence_subprocess import take_in_subprocess

__all__ = ("executor", "journal", "slurm", "store")  # fixtures
RULE = '[[rule]]\nname = "hung"\ncauses = ["stopped"]\naction = "cancel"\ngrace = "{grace}"\n'


def test_a_process_that_keeps_the_lock_stops_neither_looks_nor_the_pages_from_saying_so(
    tmp_path, store, slurm, monkeypatch
):
    """A stopped `twin act approve` kept the lock, and the service waited for it for ever."""
    monkeypatch.setattr(action_journal, "LOCK_S", 0.0)
    hand, state, stop = hand_of(tmp_path, store, slurm, "ask"), ServiceState(tmp_path, store), threading.Event()
    turns, turn = [], hand.turn

    def counted(events, now_s, suspects):
        turns.append(now_s)
        turn([EVENT], NOW_S + 60 * len(turns), suspects)
        if len(turns) == 2:
            stop.set()

    monkeypatch.setattr(hand, "turn", counted)
    lock = os.open(tmp_path / "act.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=watch, args=(hand, state, stop, 0.001), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    finally:
        os.close(lock)
    (problem,) = problems(state)
    assert problem.startswith("evidence and actions: another process acts and holds ")
    assert len(hand.evidence.of("ab12")) == 2


def test_an_approved_action_is_done_when_the_lock_is_free_again(tmp_path, journal, slurm, monkeypatch):
    monkeypatch.setattr(action_journal, "LOCK_S", 0.0)
    executor = Executor(tmp_path, journal, slurm, sleep=lambda _: None, clock=lambda: NOW_S)
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    lock = os.open(tmp_path / "act.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SourceError, match=r"holds .*act\.lock; approved actions wait for it"):
            executor.execute(action.id)
        assert slurm.calls == []
    finally:
        os.close(lock)
    assert [done.state for done in executor.recover()] == ["done"]


class Unkillable(subprocess.Popen):
    """A program in state D: it does not end, and a wait without a limit of time lasts for ever."""

    waits: ClassVar[list[float]] = []

    def kill(self) -> None:
        pass

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "this would wait for ever"
        self.waits.append(timeout)
        raise subprocess.TimeoutExpired(self.args, timeout)


@pytest.fixture
def unkillable(monkeypatch):
    programs = []

    def start(*arguments, **settings):
        programs.append(Unkillable(*arguments, **settings))
        return programs[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    yield programs
    for program in programs:
        os.kill(program.pid, 9)
        os.waitpid(program.pid, 0)
        program.returncode = -9


def test_a_command_that_a_signal_does_not_end_is_given_up(unkillable):
    with pytest.raises(subprocess.TimeoutExpired):
        foreign_files.read_output([sys.executable, "-c", "import time; time.sleep(600)"], 1000, 0.1)
    assert unkillable[0].waits[-1] == foreign_files.KILLED_S


def test_evidence_whose_reader_a_signal_does_not_end_is_given_up(unkillable):
    with pytest.raises(SourceError, match="no evidence of job 1: it took longer than"):
        take_in_subprocess("1", os.getuid(), "n1", timeout_s=0.01)
    assert unkillable[0].waits[-1] == foreign_files.KILLED_S


@pytest.mark.parametrize("step_s", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_during_the_grace_changes_nothing(tmp_path, journal, slurm, step_s):
    slurm.deaf_to_term = True
    clock_s, ticks = [NOW_S], [0.0]

    def sleep(seconds):
        ticks[0] += seconds
        clock_s[0] = NOW_S + step_s

    action = journal.propose("ab12", "cancel", "hung", plan_of(slurm, grace_s=30.0), NOW_S)
    assert action is not None
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    executor = Executor(tmp_path, journal, slurm, sleep, lambda: clock_s[0], tick=lambda: ticks[0])
    assert executor.execute(action.id).state == "done"
    assert slurm.calls == ["scancel --signal=TERM --full 42", "scancel 42"]
    assert ticks[0] == 30.0


def test_a_grace_has_a_limit():
    assert parse_policy(RULE.format(grace="1 h")).rules[0].grace_s == 3600
    with pytest.raises(SettingsError, match="rule 'hung': grace must be at most 1 h"):
        parse_policy(RULE.format(grace="2 h"))


def test_a_hand_that_stands_still_is_a_problem_and_a_grace_is_none(tmp_path, store, slurm):
    hand, state = hand_of(tmp_path, store, slurm, "ask"), ServiceState(tmp_path, store)
    state.hand_age_s = lambda: HAND_STANDS_S
    assert problems(state) == ()
    state.hand_age_s = lambda: HAND_STANDS_S + 1
    assert problems(state) == ("evidence and actions: nothing has been looked at or done for 301 s",)
    hand.alive_s = 0.0
    hand._sleep(0.0)
    assert hand.alive_s > 0.0


def test_the_age_of_the_hand_is_published_while_it_runs(tmp_path, store, slurm, monkeypatch):
    hand, state, stop = hand_of(tmp_path, store, slurm, "ask"), ServiceState(tmp_path, store), threading.Event()
    ages = []

    def turn(events, now_s, suspects):
        hand.alive_s -= 1000.0
        ages.append(state.hand_age_s())
        stop.set()

    monkeypatch.setattr(hand, "turn", turn)
    watch(hand, state, stop, check_s=0.001)
    assert ages[0] >= 1000.0


def test_the_hand_begins_although_its_first_look_at_the_journal_fails(tmp_path, store, slurm, monkeypatch):
    """An error that is not ours ended the thread before its first turn."""
    hand, state, stop = hand_of(tmp_path, store, slurm, "ask"), ServiceState(tmp_path, store), threading.Event()

    def recover():
        if stop.is_set():
            return
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(hand.executor, "recover", recover)
    monkeypatch.setattr(hand, "turn", lambda *args: stop.set())
    watch(hand, state, stop, check_s=0.001)
    assert stop.is_set()


def test_the_metric_counts_every_problem(tmp_path):
    """Those of the hand, of nights and of forecasts were left out, so that no alert told of them."""
    state = sample_state.state(tmp_path)

    def counted() -> int:
        found = re.search(r"^twin_loop_problems (\d+)$", service_metrics.render(state), re.MULTILINE)
        assert found
        return int(found[1])

    before = counted()
    state.hand_problem = "Slurm does not answer"
    (tmp_path / "learning.json").write_text("{")
    assert counted() == before + 2
    state.snapshot = replace(state.snapshot, problems=tuple(f"n{i} does not answer" for i in range(100)))
    assert counted() == 102 > MOST
    state.store.close()
