"""More than 200 simulated events of all kinds: no title and no reason contradicts its own numbers or the job's seconds.

Two jobs of different kinds share each node and go wrong within two minutes of each other.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.live.event_reasons import Reasons
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.events.causes import UNUSUAL, cause_of
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.event_rows import held_rows
from clustertwin.telemetry.detection.events.explanation import Explanation
from clustertwin.telemetry.detection.events.tracker import Tracker
from clustertwin.telemetry.detection.questions.assess import assess
from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.moments.moment import Moment, moments
from clustertwin.telemetry.simulation.anomalies import ANOMALIES, draw_afflicted, draw_healthy
from clustertwin.telemetry.simulation.signature import read_signatures

pytestmark = pytest.mark.slow
WIDTH, SECONDS, ONSET_S = 4, 640, 360
#: Findings open events by default, so most are of them.
NODES = {"scores": 44, "findings": 121}
EVENTS = {"scores": 80, "findings": 200}
STEP_S = 30
#: The causes that a kind may be given, and the channel with its direction that an unusual event of it may show.
RIGHT = {
    "bad-io": ({"stalled-io"}, "iowait up"),
    "slow-io": ({"stalled-io"}, "iowait up"),
    "hung-job": ({"idle"}, "idle up"),
    "hung-rank": ({"hung-rank"}, "idle up"),
    "misbound": ({"misbound"}, "idle up"),
    "straggler-x2": ({"straggler"}, "system up"),
    "straggler-x1.5": ({"straggler"}, "system up"),
    "throttled": (set(), "idle up"),
    "noisy-neighbour": (set(), "system up"),
    "swap-bursts": (set(), "system up"),
    "memory-leak": (set(), "system up"),
}
#: The causes that a finding may give to a kind.
FOUND = {
    "bad-io": {"stalled-io"},
    "slow-io": {"stalled-io"},
    "hung-job": {"idle"},
    "hung-rank": {"hung-rank"},  # the ranks that wait poll in the kernel: a symptom
    "misbound": {"misbound"},
    "straggler-x2": {"straggler"},
    "straggler-x1.5": {"straggler"},
    "throttled": {"hung-rank", "straggler"},  # one thread works less than the others
    "noisy-neighbour": {"straggler", "kernel-time"},
    "swap-bursts": {"kernel-time"},
    "memory-leak": set(),  # it shows in no channel of these threads
}


@dataclass(frozen=True)
class Report:
    """One message: the event, its explanation, its title, and the moment that it was made from."""

    event: Event
    why: Explanation
    title: str
    moment: Moment


def a_node(number: int, kinds: tuple[str, str]) -> Trace:
    """Two jobs with four threads each, and two free threads."""
    signatures, rng = read_signatures(), np.random.default_rng(number)
    ticks, spans = [], []
    for i, kind in enumerate(kinds):
        row, onset_s = ANOMALIES[kind], ONSET_S + 40 * i
        job_type = f"mpi-{WIDTH}" if row.job_types[0] == "mpi" else row.job_types[0]
        onset_s = 0 if row.from_start else onset_s
        healthy = [draw_healthy(signatures, job_type, WIDTH, onset_s, rng)] if onset_s else []
        bad = draw_afflicted(signatures, job_type, kind, WIDTH, SECONDS - onset_s, 1, rng)
        ticks.append(np.concatenate([*healthy, bad], axis=1))
        cpus = tuple(range(i * WIDTH, (i + 1) * WIDTH))
        spans.append(JobSpan(f"{number}-{i}", f"n{number:03d}", cpus, 0, SECONDS, job_type, "", kind, onset_s))
    ticks.append(draw_healthy(signatures, "idle", 2, SECONDS, rng))
    values = (np.concatenate(ticks) / np.float32(100)).astype(np.float32)
    threads = tuple(range(len(values)))
    return Trace(f"n{number:03d}", threads, 0, CPU, values, np.ones(values.shape[:2], np.bool_), tuple(spans))


@pytest.fixture(scope="module", params=["scores", "findings"])
def opened_by(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def traces(opened_by) -> list[Trace]:
    kinds = list(ANOMALIES)
    pairs = [(kinds[n % len(kinds)], kinds[(n + 1 + n // len(kinds)) % len(kinds)]) for n in range(NODES[opened_by])]
    return [a_node(n, pair) for n, pair in enumerate(pairs)]


@pytest.fixture(scope="module")
def reports(opened_by, traces) -> list[Report]:
    """Every change of an event, explained as the service does it."""
    detector, tracker, reasons, memory = bundled(), Tracker(), Reasons(lambda: 0.0), QuestionMemory()
    reports: list[Report] = []
    for moment, _ in moments(traces, every_s=STEP_S):
        scores = detector.score(moment)
        findings = None
        if opened_by == "findings":
            findings = assess(moment, scores, memory, detector.threshold, {}, ()).findings
        changes = tracker.update(moment, scores, detector.threshold, findings=findings)
        for event, why in reasons.of(detector, moment, scores, changes, findings or ()):
            if why is not None and event.open:
                reports.append(Report(event, why, event.title, moment))
    return reports


def kind_of(traces: list[Trace], event: Event) -> str:
    return next(span.anomaly for trace in traces for span in trace.spans if span.job == event.job)


def test_there_are_many_events_of_all_kinds(opened_by, reports, traces):
    events = {report.event.id: report.event for report in reports}
    assert len(events) >= EVENTS[opened_by]
    kinds = {kind for kind, causes in FOUND.items() if causes} if opened_by == "findings" else set(ANOMALIES)
    assert set(Counter(kind_of(traces, event) for event in events.values() if event.jobs)) == kinds


def test_unrelated_jobs_are_separate_events(reports):
    assert {len(report.event.jobs) for report in reports} <= {0, 1}


def test_the_cause_is_the_right_one_or_unusual_with_the_right_channel_and_direction(opened_by, reports, traces):
    for report in reports:
        if not report.event.jobs:
            continue
        kind = kind_of(traces, report.event)
        if opened_by == "findings":
            assert report.event.cause in FOUND[kind], (kind, report.title)
            continue
        causes, direction = RIGHT[kind]
        if report.event.cause in causes:
            continue
        assert report.event.cause == UNUSUAL, (kind, report.title)
        if report.why.against:
            main = report.why.ratios[0]
            usual = {"own past": main.before, "ranks": main.neighbours, "site": main.expected}[report.why.against]
            channel = "idle" if main.channel == "other" else main.channel
            assert f"{channel} {'up' if main.seen > usual else 'down'}" == direction, (kind, report.title)


def test_a_known_fault_is_only_named_for_jobs_that_have_it(reports, traces):
    for report in reports:
        if report.why.known_fault and report.event.jobs:
            assert report.why.known_fault == kind_of(traces, report.event), report.title


def contradictions(report: Report) -> list[str]:
    """What the texts of a report say against each other, or against the seconds of its threads."""
    wrong = []
    for text in (report.title, report.why.sentence):
        numbers = re.findall(r"([\d.]+) %", text.split("Closest")[0])
        if any(a == b for a, b in pairwise(numbers[:2])):
            wrong.append(f"seen is expected: {text}")
        words = re.search(r"(\w+) ([\d.]+) %.*?, (up|down|more|less) .*?([\d.]+) %", text)
        if words and (float(words[2]) > float(words[4])) != (words[3] in ("up", "more")):
            wrong.append(f"direction: {text}")
    shown = re.search(r": (\w+) was ([\d.]+) % over (\d+) s", report.why.sentence)
    found = re.search(r": (\w+) ([\d.]+) %, (?:up|down) from", report.why.sentence)
    if report.why.measure is None and shown:
        means = mean_of_threads(report, shown[1], int(shown[3]))
        if not means.min() - 1 <= float(shown[2]) <= means.max() + 1:
            wrong.append(f"seconds: {report.why.sentence}")
    if found and abs(mean_of_threads(report, found[1], QuestionSettings().block_s).mean() - float(found[2])) > 1:
        wrong.append(f"seconds of the finding: {report.why.sentence}")
    return wrong


def mean_of_threads(report: Report, channel: str, seconds: int) -> np.ndarray:
    """(thread,) in percent, over the last seconds of the event's threads."""
    values = report.moment.values[held_rows(report.moment, report.event), -seconds:]
    return 100 * values[:, :, CPU.index({"idle": "other"}.get(channel, channel))].mean(1)


def test_titles_and_reasons_agree_with_the_seconds_of_the_threads(reports):
    assert [wrong for report in reports for wrong in contradictions(report)] == []


def test_a_title_that_contradicts_its_numbers_is_found(reports):
    """The check above can fail: turn every direction, repeat every number, or show the seconds of another time."""
    turned = {"up from": "down from", "more than": "less than", "less than": "more than", "down from": "up from"}
    swap = re.compile("|".join(turned))
    directed = [report for report in reports if re.search(r"\d %.*?, (up|down|more|less) .*?\d %", report.title)]
    assert len(directed) > len(reports) / 4
    for report in directed:
        assert contradictions(replace(report, title=swap.sub(lambda found: turned[found[0]], report.title)))
        assert contradictions(replace(report, title="idle 50 % on 1 thread, more than the 50 % expected"))
    texts = re.compile(r": \w+ was [\d.]+ % over|: \w+ [\d.]+ %, (up|down) from")
    measured = [report for report in reports if texts.search(report.why.sentence)]
    assert len(measured) > len(reports) / 2
    for report in measured:
        others = [replace(report.moment, values=np.full_like(report.moment.values, level)) for level in (0, 1)]
        assert any(contradictions(replace(report, moment=other)) for other in others)


def test_thread_counts_in_titles_are_those_of_the_job(reports):
    for report in reports:
        if share := re.search(r"(\d+) of (\d+) threads", report.title):
            assert int(share[1]) < int(share[2]) == WIDTH, report.title
        elif report.event.jobs and report.why.measure is None:
            assert f"{WIDTH} threads" in report.title, report.title


def test_every_event_says_what_to_do_next(reports):
    assert all(report.why.next_step == cause_of(report.event.cause).next_step != "" for report in reports)


def test_an_event_keeps_its_identity_to_its_last_message(reports):
    identity: dict[str, tuple[str, str, str]] = {}
    for report in reports:
        event = report.event
        assert identity.setdefault(event.id, (event.job, event.node, event.cause)) == (
            event.job,
            event.node,
            event.cause,
        )
