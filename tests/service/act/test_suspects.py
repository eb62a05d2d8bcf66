"""Jobs that may stand still: looked at rarely, and an event opens only after two looks that claim the same hang."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.service.act.paper_slurm import START_S, PaperSlurm

from clustertwin.core.channels import JOB
from clustertwin.core.errors import SourceError
from clustertwin.service.act.evidence_sources import take_on_this_host
from clustertwin.service.act.evidence_store import EvidenceStore
from clustertwin.service.act.hand import Hand
from clustertwin.service.act.hand_settings import HandSettings
from clustertwin.service.act.suspect_looks import AGAIN_S, EVERY_S, LONGEST_S, MOST_A_MINUTE
from clustertwin.service.live.feeds.live_feed import LiveFeed
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.questions.finding import CONFIRMED, SUSPECTED, Finding
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, ProcessEvidence
from clustertwin.telemetry.ingest.counters import MODES, JobCpus, NodeReading

NOW_S = START_S + 600
SPIN_CODE = """
import ctypes
library, lock = ctypes.CDLL(None), ctypes.c_int()
library.pthread_spin_init(ctypes.byref(lock), 0)
library.pthread_spin_lock(ctypes.byref(lock))
print("ready", flush=True)
library.pthread_spin_lock(ctypes.byref(lock))  # a second time: it spins for ever
"""


def suspect(job: str = "42", since_s: int = int(NOW_S) - 20) -> Finding:
    return Finding("change", SUSPECTED, job, "n1", (0, 1), "progress", 0.0, 0.3, "own past", since_s, 6.0)


def evidence(does: str, taken_s: float, job: str = "42") -> JobEvidence:
    return JobEvidence(job, ("n1",), taken_s, 2.0, (ProcessEvidence("n1", 9, 0, does, "R", cpu_s=2.0),), size=1)


class Helper:
    """An evidence source that says what a test tells it to."""

    def __init__(self, does: str = "spins") -> None:
        self.does, self.asked = does, 0

    def __call__(self, job: str, owner: int, nodes: object) -> JobEvidence:
        self.asked += 1
        if self.does == "silent":
            raise SourceError("no helper gave evidence of job 42: n1: ConnectError")
        return evidence(self.does, NOW_S + self.asked)


class ManyJobs(PaperSlurm):
    """Answers for any job."""

    def _facts(self, job: str) -> dict[str, object]:
        return {**super()._facts(job), "JobID": job}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state.sqlite")
    yield store
    store.close()


def hand_of(tmp_path: Path, store: Store, helper: Helper, **settings) -> Hand:
    return Hand(tmp_path, store, HandSettings(**settings), helper, ManyJobs())


def test_two_looks_that_claim_the_same_hang_make_a_hanging_job(tmp_path, store):
    helper = Helper()
    hand = hand_of(tmp_path, store, helper)
    hand.turn([], NOW_S, [suspect()])
    assert (helper.asked, hand.suspects.hanging_s) == (1, {})
    hand.turn([], NOW_S + AGAIN_S - 1, [suspect()])
    assert helper.asked == 1
    hand.turn([], NOW_S + AGAIN_S, [suspect()])
    assert (helper.asked, hand.suspects.hanging_s) == (2, {"42": NOW_S + AGAIN_S})
    hand.turn([], NOW_S + 10_000, [suspect()])
    assert helper.asked == 2  # it is known to hang
    assert hand.problem == ""


def test_a_job_that_works_is_looked_at_after_ten_minutes_and_then_ever_less_often(tmp_path, store):
    helper = Helper("computes")
    hand = hand_of(tmp_path, store, helper)
    asked_s = []
    for second in range(0, 10_000, 5):
        before = helper.asked
        hand.turn([], NOW_S + second, [suspect()])
        asked_s += [second] * (helper.asked - before)
    assert asked_s == [0, 600, 1800, 4200, 9000]
    assert hand.suspects.hanging_s == {}


def test_a_clock_that_was_set_back_does_not_stop_the_looks(tmp_path, store):
    helper = Helper("computes")
    hand = hand_of(tmp_path, store, helper)
    hand.turn([], NOW_S, [suspect()])
    hand.turn([], NOW_S - 3600, [suspect(since_s=int(NOW_S) - 3700)])
    assert helper.asked == 2


def test_a_second_look_that_claims_something_else_confirms_nothing(tmp_path, store):
    helper = Helper()
    hand = hand_of(tmp_path, store, helper)
    for second, does in ((0, "spins"), (AGAIN_S, "computes"), (AGAIN_S + EVERY_S, "spins"), (1000, "computes")):
        helper.does = does
        hand.turn([], NOW_S + second, [suspect()])
    assert helper.asked == 4
    assert hand.suspects.hanging_s == {}


def test_many_suspects_share_a_small_budget(tmp_path, store):
    helper = Helper("computes")
    hand = hand_of(tmp_path, store, helper)
    crowd = [suspect(str(100 + i)) for i in range(50)]
    for second in range(0, 60, 5):
        hand.turn([], NOW_S + second, crowd)
    assert helper.asked == MOST_A_MINUTE
    for second in range(60, 600, 5):
        hand.turn([], NOW_S + second, crowd)
    assert helper.asked == 10 * MOST_A_MINUTE


def test_a_helper_that_fails_is_a_problem_and_is_not_asked_again_at_once(tmp_path, store):
    helper = Helper("silent")
    hand = hand_of(tmp_path, store, helper)
    for second in range(0, 300, 5):
        hand.turn([], NOW_S + second, [suspect()])
    assert helper.asked == 1
    hand.turn([], NOW_S + EVERY_S, [suspect()])
    assert helper.asked == 2
    assert "no helper gave evidence" in hand.problem


def test_a_suspicion_that_began_again_needs_new_evidence(tmp_path, store):
    hand = hand_of(tmp_path, store, Helper())
    for second in (0, AGAIN_S):
        hand.turn([], NOW_S + second, [suspect()])
    assert hand.suspects.hanging_s
    hand.turn([], NOW_S + 200, [suspect(since_s=int(NOW_S) + 150)])
    assert hand.suspects.hanging_s == {}


def test_suspects_are_left_alone_where_the_site_says_so_and_while_an_event_says_that_they_stand_still(tmp_path, store):
    helper = Helper()
    hand = hand_of(tmp_path, store, helper, suspects=False)
    hand.turn([], NOW_S, [suspect()])
    assert helper.asked == 0
    event = Event("ab12", (("n1", (0, 1)),), ("42",), "", int(NOW_S), int(NOW_S), None, 9.0, "change", "m", "idle")
    assert hand.suspects.due([suspect()], [event], NOW_S) is None
    beside = replace(event, cause="cpu-contention")  # it may hang all the same
    assert hand.suspects.due([suspect()], [beside], NOW_S) == suspect()


def test_the_event_of_a_confirmed_suspicion_has_the_evidence_that_opened_it(tmp_path, store):
    hand = hand_of(tmp_path, store, Helper())
    for second in (0, AGAIN_S):
        hand.turn([], NOW_S + second, [suspect()])
    event = Event("ab12", (("n1", (0, 1)),), ("42",), "", int(NOW_S), int(NOW_S), None, 9.0, "change", "m", CONFIRMED)
    store.write([(event, None)])
    for second in (40, 45):
        hand.turn([event], NOW_S + second, [suspect()])
    stored = EvidenceStore(store.database).of("ab12")
    assert [entry.finding.kind for entry in stored] == ["spins"] * 3  # two that opened it, and the first look at it
    assert [entry.evidence.taken_s for entry in stored] == [NOW_S + 3, NOW_S + 2, NOW_S + 1]


class StandingJob:
    """A node whose job is busy. It has 50 page faults a second for five minutes, and then none."""

    def __init__(self, clock) -> None:
        self.clock, self.begin_s = clock, clock.now_s

    def readings(self) -> list[NodeReading]:
        now_s, since_s = self.clock.now_s, self.clock.now_s - self.begin_s
        seconds = np.zeros((2, len(MODES)))
        seconds[:, 0] = now_s
        operands = np.full((1, len(JOB), 2), np.nan)
        operands[0, JOB.index("job_cpu")] = 2 * since_s, 2
        operands[0, JOB.index("job_page_faults"), 0] = 50 * min(since_s, 300)
        return [NodeReading("n1", now_s, (0, 1), seconds, jobs=(JobCpus("42", (0, 1)),), job_operands=operands)]


@pytest.mark.medium
@pytest.mark.parametrize(("does", "opens"), [("spins", True), ("computes", False)])
def test_a_live_job_that_spins_opens_an_event_and_one_that_computes_does_not(
    loop_of, state, clock, tmp_path, does, opens
):
    clock.now_s = NOW_S
    loop, helper = loop_of(LiveFeed("test", [("n1", StandingJob(clock))], clock)), Helper(does)
    hand = hand_of(tmp_path, state.store, helper)
    asked_s = []
    for second in range(1, 501):
        clock.now_s = NOW_S + second
        loop.turn()
        if second % 5 == 0:  # as the thread beside the loop does
            before = helper.asked
            hand.turn(state.snapshot.events, clock.now_s, state.snapshot.suspects)
            state.hanging_s = hand.suspects.hanging_s
            asked_s += [second] * (helper.asked - before)
    assert 395 <= asked_s[0] <= 415
    assert {finding.job for finding in state.snapshot.suspects} == {"42"}
    if not opens:
        assert asked_s[1:] == []
        assert state.snapshot.events == ()
        return
    (event,) = state.snapshot.events
    assert (event.cause, event.question, event.job) == (CONFIRMED, "change", "42")
    assert "makes no progress: page faults and traffic 0 %" in event.title
    assert len(EvidenceStore(state.store.database).of(event.id)) >= 2


@pytest.mark.slow
def test_after_a_restart_evidence_is_taken_again_and_the_event_goes_on(loop_of, state, clock, tmp_path):
    clock.now_s = NOW_S
    source = StandingJob(clock)

    def watch(seconds: int) -> Event:
        """With a loop and a hand of their own."""
        loop = loop_of(LiveFeed("test", [("n1", source)], clock), clock=clock)
        hand = hand_of(tmp_path, state.store, Helper("spins"))
        for second in range(seconds):
            clock.now_s += 1
            loop.turn()
            if second % 5 == 0:
                hand.turn(state.snapshot.events, clock.now_s, state.snapshot.suspects)
                state.hanging_s = hand.suspects.hanging_s
        (event,) = state.snapshot.events
        return event

    before, after = watch(600), watch(700)
    assert (before.id, before.cause) == (after.id, CONFIRMED)
    assert after.seen_s > clock.now_s - 30


@pytest.mark.real
@pytest.mark.skipif(not shutil.which("eu-stack"), reason="eu-stack (elfutils) is not installed")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="native stacks need x86_64")
def test_a_real_process_that_spins_on_a_lock_is_confirmed_by_the_real_helper(tmp_path, store):
    job = str(10**8 + os.getpid())
    environment = {**os.environ, "SLURM_JOB_ID": job, "SLURM_PROCID": "0"}
    with subprocess.Popen([sys.executable, "-c", SPIN_CODE], stdout=subprocess.PIPE, env=environment) as spins:
        try:
            assert spins.stdout is not None
            spins.stdout.readline()
            slurm = ManyJobs()
            slurm.uid = os.getuid()
            hand = Hand(tmp_path, store, HandSettings(), take_on_this_host, slurm)
            begin_s = now_s = time.time()
            # Beside a busy neighbour the process may not stop for its stack in time. Such a look claims nothing.
            for _ in range(30):
                hand.turn([], now_s, [suspect(job, int(begin_s) - 1)])
                assert hand.problem == ""
                if looks := hand.suspects.evidence_of(job):
                    break
                due = hand.suspects.due([suspect(job)], [], now_s + AGAIN_S)
                now_s += AGAIN_S if due else LONGEST_S + 1
        finally:
            spins.kill()
    assert len(looks) == 2
    assert {process.does for look in looks for process in look.processes} == {"spins"}
