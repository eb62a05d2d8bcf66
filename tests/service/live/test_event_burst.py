"""Hundreds of events in one scoring: all are stored at once, and they are explained over several turns."""

from __future__ import annotations

import numpy as np
import pytest
from tests.service.conftest import Clock, ready
from tests.service.sample_state import WHY

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.live import event_reasons
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.scorer import InProcessScorer
from clustertwin.service.store.event_store import Filter
from clustertwin.telemetry.detection.events.tracker import EventSettings
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.moments.moment import Moment

START_S = 1_000_000


class Cluster:
    """A feed of many small nodes with one job each."""

    source, pace, patient, problems, faults = "test", 1.0, False, (), Faults()

    def __init__(self, clock: Clock, nodes: int) -> None:
        self.clock, self.given_s = clock, START_S
        self.names = [f"n{i:04d}" for i in range(nodes)]

    def now_s(self) -> float:
        return self.clock()

    def take(self) -> list[Trace]:
        first_s, self.given_s = self.given_s, int(self.clock())
        values = np.zeros((1, self.given_s - first_s, len(CPU)), np.float32)
        values[..., 0] = 1
        return [
            Trace(name, (0,), first_s, CPU, values, np.ones(values.shape[:2], np.bool_), (self.job(name),))
            for name in self.names
        ]

    def job(self, node: str) -> JobSpan:
        return JobSpan(f"job-{node}", node, (0,), START_S - 1000, self.clock())

    def close(self) -> None:
        pass


class AllAlike(InProcessScorer):
    """Every thread has this score."""

    score = 20.0

    def __call__(self, detector, moment: Moment) -> Scores:
        strange = np.full(len(moment), self.score, np.float32)
        return Scores(strange, strange[:, None], ("peers",), strange, np.zeros((len(moment), 2), np.float32))


@pytest.fixture(params=[100])
def burst(state, detector, monkeypatch, request):
    """A loop in which every job becomes anomalous at once, and an explanation takes 10 ms of the test's clock."""
    clock, work = Clock(START_S + 100), Clock()

    def explain(*args):
        work.now_s += 0.01
        return WHY

    monkeypatch.setattr(event_reasons, "explain", explain)
    monkeypatch.setattr(event_reasons.Reasons, "_landmarks_of", lambda *args: None)
    handover = ready(Handover(state.home, detector))
    scorer = AllAlike()
    # Every score is high, and no job is harmed or changes: only scores can open this burst.
    settings = LoopSettings(stride_s=10, events=EventSettings(opened_by="scores"))
    return (
        Loop(state, Cluster(clock, request.param), handover, settings, score=scorer, clock=work),
        clock,
        scorer,
    )


def until_open(loop: Loop, clock: Clock, scorer: AllAlike):
    while not loop.turn().events:
        clock.now_s += 10
    return loop.state.snapshot


@pytest.mark.medium
@pytest.mark.parametrize("burst", [200, pytest.param(5000, marks=pytest.mark.slow)], indirect=True)
def test_a_burst_loses_no_event(burst, state):
    """Five thousand events in one scoring are five hundred a second at a stride of ten."""
    snapshot = until_open(*burst)
    nodes = len(burst[0].feed.names)
    assert len(snapshot.events) == nodes
    assert state.store.count(Filter(open=True)) == nodes
    assert {case.id for case in state.store.events(limit=2 * nodes)} == {event.id for event in snapshot.events}
    assert sum(count for _, count in snapshot.opened_total) == nodes


def test_events_are_explained_over_several_turns_without_delaying_the_loop(burst, state):
    loop, clock, _ = burst
    until_open(*burst)
    explained = [sum(case.why is not None for case in state.store.events(limit=100))]
    assert explained[0] == pytest.approx(event_reasons.TURN_S / 0.01, abs=2)
    while explained[-1] < 100:
        clock.now_s += 1
        loop.turn()
        explained.append(sum(case.why is not None for case in state.store.events(limit=100)))
    steps = np.diff(explained)
    assert (steps[:-1] > 0).all()
    assert (steps <= event_reasons.TURN_S / 0.01 + 2).all()


def test_an_event_that_closes_before_its_explanation_stays_closed(burst, state):
    loop, clock, scorer = burst
    until_open(*burst)
    scorer.score = 0.0
    while loop.state.snapshot.events:
        clock.now_s += 10
        loop.turn()
    while loop._reasons:
        clock.now_s += 1
        loop.turn()
    assert state.store.count(Filter(open=True)) == 0
