"""A busy job without signs of progress is suspected, and only evidence turns a suspicion into an event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.telemetry.detection.test_questions import BUSY, IDLE, a_job, in_cgroup, opened, quiet_scores, watch

from clustertwin.core.traces import Trace
from clustertwin.telemetry.campaign.zoo.zoo_data import ZooRun, load_zoo, zoo_folder
from clustertwin.telemetry.detection.events.tracker import Tracker
from clustertwin.telemetry.detection.questions.assess import Assessment, assess
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.questions.no_progress import CONFIRMED, confirm, suspects
from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
from clustertwin.telemetry.moments.moment import moments

needs_zoo = pytest.mark.skipif(
    not list(zoo_folder().glob("*.jsonl.xz")), reason="this checkout has no data package (data/zoo)"
)


def spinning(
    before: float = 0.3, then: float = 0.0, traffic: float = 0.0, first_s: int = 600, last_s: int = 300, shares=BUSY
) -> Trace:
    """A job of four threads that works, for ten minutes by default, and then only looks as if it did."""
    trace = a_job((first_s, BUSY), (last_s, shares))
    used = sum(shares[:2])
    return in_cgroup(trace, last_s, job_cpu=(0.99, used), job_page_faults=(before, then), job_io_traffic=(0.0, traffic))


def test_a_busy_job_that_read_all_the_time_and_reads_no_more_is_suspected() -> None:
    trace = in_cgroup(
        a_job((600, BUSY), (300, BUSY)), 300, job_cpu=(0.99, 0.99), job_page_faults=(0, 0), job_io_traffic=(0.07, 0)
    )
    assert suspicions(watch(trace))[0][0] == 680  # less than 2 MB/s over 100 s is no traffic


def suspicions(seen: list[tuple[int, Assessment]]) -> list[tuple[int, Finding]]:
    return [(now_s, finding) for now_s, each in seen for finding in suspects(each.findings)]


def test_a_busy_job_without_its_usual_signs_of_progress_is_suspected_after_100_s() -> None:
    first_s, finding = suspicions(watch(spinning()))[0]
    assert first_s == 700
    assert (finding.question, finding.compared_with, finding.channel) == ("change", "own past", "progress")
    assert (finding.value, finding.usual) == (0.0, pytest.approx(0.3))


@pytest.mark.medium
@pytest.mark.parametrize("first_s", [301, 311, 321])
def test_a_half_minute_that_holds_the_end_of_the_work_does_not_hide_the_standstill(first_s: int) -> None:
    assert suspicions(watch(spinning(first_s=first_s)))[0][0] <= first_s + 110


@pytest.mark.medium
def test_a_suspicion_opens_no_event_and_stays_while_the_job_stands_still() -> None:
    seen = watch(spinning(last_s=1200))
    assert opened(seen) == {}
    assert [now_s for now_s, _ in suspicions(seen)] == list(range(700, 1801, 10))
    assert {finding.since_s for _, finding in suspicions(seen)} == {700}


@pytest.mark.medium
@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(spinning(then=0.3), id="page faults go on"),
        pytest.param(spinning(then=0.005), id="few page faults go on"),
        pytest.param(spinning(before=0.0), id="it never had page faults or traffic"),
        pytest.param(spinning(traffic=0.05), id="it reads or writes"),
        pytest.param(spinning(shares=IDLE), id="it is idle"),
        pytest.param(a_job((600, BUSY), (300, BUSY)), id="page faults are not known"),
    ],
)
def test_no_job_is_suspected_that(trace: Trace) -> None:
    assert suspicions(watch(trace)) == []


@pytest.mark.medium
def test_a_solver_that_often_reuses_its_memory_is_suspected_no_more() -> None:
    trace = in_cgroup(a_job((2400, BUSY)), 1, job_cpu=(0.99, 0.99), job_page_faults=(0.3, 0.3), job_io_traffic=(0, 0))
    assert trace.job_channels is not None
    values = trace.job_channels.values.copy()
    for begin in range(300, 2400, 300):
        values[0, begin : begin + 200, 1] = 0.0
    seen = suspicions(watch(replace(trace, job_channels=replace(trace.job_channels, values=values))))
    assert seen[0][0] == 400
    assert max(now_s for now_s, _ in seen) < 900  # two such phases are a habit of the program


@pytest.mark.medium
def test_a_job_on_two_nodes_is_suspected_if_both_stand_still() -> None:
    def seen(faults_elsewhere: float) -> list[Finding]:
        here, there = spinning(), replace(spinning(then=faults_elsewhere), node="n2")
        there = replace(there, spans=(replace(there.spans[0], node="n2"),))
        memory, out = QuestionMemory(), []
        for moment, _ in moments([here, there], every_s=10):
            out += suspects(assess(moment, quiet_scores(moment), memory, 3.0).findings)
        return out

    assert {finding.node for finding in seen(0.0)} == {"n1", "n2"}
    assert seen(0.3) == []


def test_evidence_confirms_only_suspicions_that_began_before_it() -> None:
    now_s, finding = suspicions(watch(spinning()))[0]
    assert confirm([finding], {}) == ()
    assert confirm([finding], {"j": now_s - 1.0}) == ()
    assert confirm([finding], {"other": now_s + 5.0}) == ()
    (found,) = confirm([finding], {"j": now_s + 5.0})
    assert found == replace(finding, cause=CONFIRMED)
    assert found.opens_event
    assert found.held(now_s)


@pytest.mark.medium
def test_a_confirmed_suspicion_opens_an_event_that_closes_when_the_job_works_again() -> None:
    trace = a_job((1500, BUSY))
    trace = in_cgroup(trace, 1, job_cpu=(0.99, 0.99), job_page_faults=(0.3, 0.3), job_io_traffic=(0, 0))
    assert trace.job_channels is not None
    trace.job_channels.values[0, 600:900, 1] = 0.0
    memory, tracker, changes = QuestionMemory(), Tracker(), []
    for moment, _ in moments([trace], every_s=10):
        scores = quiet_scores(moment)
        findings = assess(moment, scores, memory, 3.0).findings
        hanging_s = {"j": 760.0} if moment.end_s >= 760 else {}
        findings += confirm(findings, hanging_s)
        changes += [(moment.end_s, change) for change in tracker.update(moment, scores, 3.0, findings=findings)]
    assert [(now_s, change.kind) for now_s, change in changes if change.kind != "extended"] == [
        (760, "opened"),
        (1020, "closed"),
    ]
    assert changes[0][1].event.cause == CONFIRMED
    assert changes[0][1].event.title == "Job j keeps its CPUs busy and makes no progress"


def test_a_hang_that_evidence_confirms_takes_over_from_an_event_about_other_work() -> None:
    """A little other work beside a job that spins opened "competes for its CPUs", and the hang was never named."""
    memory, tracker, changes = QuestionMemory(), Tracker(), []
    for moment, _ in moments([spinning()], every_s=10):
        scores = quiet_scores(moment)
        findings = assess(moment, scores, memory, 3.0).findings
        confirmed = confirm(findings, {"j": 760.0} if moment.end_s >= 760 else {})
        beside = [replace(f, cause="cpu-contention", channel="others", since_s=500) for f in suspects(findings)]
        changes += tracker.update(moment, scores, 3.0, findings=(*findings, *beside, *confirmed))
    opened = [change.event.cause for change in changes if change.kind == "opened"]
    assert opened == ["cpu-contention", CONFIRMED]


def _suspected_s(run: ZooRun) -> list[float]:
    """When a recorded run is suspected, in seconds since its fault began."""
    trace = run.trace
    span = replace(trace.spans[0], start_s=0, end_s=trace.end_s - trace.start_s, anomaly="", onset_s=None)
    seen = suspicions(watch(replace(trace, start_s=0, spans=(span,))))
    return [trace.start_s + now_s - run.phases[0].onset_s for now_s, _ in seen]


@needs_zoo
@pytest.mark.slow
def test_no_healthy_program_of_the_zoo_is_suspected_and_all_that_spin_are() -> None:
    found = {run.name: times for run in load_zoo() if (times := _suspected_s(run))}
    # On two CPUs a rank that waits for a stopped or a blocked one spins, too; bound to one CPU,
    # openfoam hardly moves. espresso, numpy and nwchem spin after another fault.
    on_two = "cp2k", "espresso", "gpaw", "iqtree", "lammps", "mafft", "meep", "nwchem", "openfoam"
    assert found.keys() == {
        "fio-0",
        "zstd-0",
        "numpy-0",
        "ngspice-0",
        "salmon-0",
        *(f"{name}-2cpu-0" for name in on_two),
    }
    assert all(min(times) > 95 for times in found.values())
    assert all(min(found[name]) < 115 for name in ("fio-0", "zstd-0", "lammps-2cpu-0"))


@needs_zoo
@pytest.mark.slow
@pytest.mark.parametrize(("name", "cause", "onset"), [("lammps", "hung-rank", 0), ("cp2k", "misbound", 1)])
def test_faults_of_recorded_ranks_that_are_not_bound_are_named(name: str, cause: str, onset: int) -> None:
    run = next(run for run in load_zoo(programs=[name]) if len(run.trace.cpus) == 2)
    trace = run.trace
    span = replace(trace.spans[0], start_s=0, end_s=trace.end_s - trace.start_s, anomaly="", onset_s=None)
    held_s, _ = opened(watch(replace(trace, start_s=0, spans=(span,))))[cause]
    assert 60 < held_s + trace.start_s - run.phases[onset].onset_s < 150
