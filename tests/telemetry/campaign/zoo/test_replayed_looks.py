"""Recorded looks are judged as the service judges its own: two at a suspect that claim the same hang."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from clustertwin.telemetry.campaign.zoo.raw_run import read_raw_run
from clustertwin.telemetry.campaign.zoo.recorded_look import RecordedLook
from clustertwin.telemetry.campaign.zoo.zoo_data import zoo_folder, zoo_run_of
from clustertwin.telemetry.detection.questions.finding import SUSPECTED, Finding
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, ProcessEvidence

SINCE_S = 1000
SUSPECT = Finding("change", SUSPECTED, "j", "zoo", (0,), "progress", 0.0, 0.3, "own past", SINCE_S, 6.0)
RECORDED = zoo_folder() / "zstd-0.jsonl.xz"


@pytest.fixture
def replay(monkeypatch):
    monkeypatch.syspath_prepend("benchmarks")  # as `python benchmarks/zoo.py` sees it
    import zoo_looks

    return zoo_looks


def a_look(at_s: float, does: str = "spins", took_s: float = 3.0) -> RecordedLook:
    process = ProcessEvidence("zoo", 9, None, does, "R", cpu_s=2.0)
    return RecordedLook(at_s, took_s, JobEvidence("zoo", ("zoo",), at_s, 2.0, (process,)))


def hanging(replay, looks: Sequence[RecordedLook], until_s: int = 1300, suspected=range(SINCE_S, 9999)):
    """When the job was shown to hang by these looks, at moments every ten seconds; None: never."""
    replayed = replay.ReplayedLooks(looks)
    for now_s in range(500, until_s, 10):
        if replayed.hanging_s(now_s):
            return now_s
        replayed.remember((SUSPECT,) if now_s in suspected else (), (), now_s)
    return None


@pytest.mark.parametrize(
    ("looks", "shown_s"),
    [
        ([a_look(1005), a_look(1036)], 1040),
        ([a_look(1005), a_look(1020), a_look(1036)], 1040),  # the second one came too early to be taken
        ([a_look(1005), a_look(1036, took_s=8)], 1050),
        ([a_look(1005)], None),
        ([a_look(1005), a_look(1030)], None),
        ([a_look(995), a_look(1030)], None),  # the first one was before the suspicion
        ([a_look(1005), a_look(1036, "computes")], None),
        ([a_look(1005, "computes"), a_look(1036), a_look(1067)], None),  # the service waits for ten minutes
        ([a_look(1005), replace(a_look(1036), evidence=None)], None),
        ([], None),
    ],
)
def test_only_two_looks_in_the_suspicion_half_a_minute_apart_confirm_it(replay, looks, shown_s):
    assert hanging(replay, looks) == shown_s


def test_a_suspicion_that_ended_before_the_second_look_is_not_confirmed(replay):
    assert hanging(replay, [a_look(1005), a_look(1036)], suspected=range(SINCE_S, 1030)) is None


def test_looks_move_with_the_fault_and_those_between_are_left_out(replay):
    looks = [a_look(at_s) for at_s in (10, 98, 120, 300, 400)]
    assert [look.at_s for look in replay.moved(looks, 100, 300, 200)] == [10, 100, 200]


@pytest.mark.slow
@pytest.mark.skipif(not RECORDED.exists(), reason="this checkout has no data package (data/zoo)")
def test_the_benchmark_opens_an_event_only_with_two_looks_and_counts_false_claims(replay):
    import zoo

    run = zoo_run_of(read_raw_run(RECORDED))
    (phase,) = run.phases
    first_s, second_s = phase.end_s - 40, phase.end_s - 8

    def causes(*looks: RecordedLook) -> list[str]:
        judged, _ = zoo.judge_by_questions(replace(run, looks=looks))
        return [event.cause for event in judged.hits(phase)]

    assert phase.fault == "spinning"
    assert causes(a_look(first_s)) == []
    assert causes(a_look(first_s), a_look(second_s)) == ["spinning"]
    healthy = [a_look(phase.onset_s - 60), a_look(phase.onset_s - 30, "computes")]
    looks = (*healthy, a_look(first_s), replace(a_look(second_s), evidence=None))
    claims = replay.claims_of([replace(run, looks=looks)])
    assert (claims["healthy"].looks, claims["healthy"].claims, claims["healthy"].kinds) == (2, 1, ("spins",))
    assert (claims["spinning"].looks, claims["spinning"].claims, claims["spinning"].failed) == (2, 1, 1)
    assert replay.cost_of([run]) is None
