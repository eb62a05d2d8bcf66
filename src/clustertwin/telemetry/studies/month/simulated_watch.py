"""Watch a simulated day as the live service does: a champion and traces -> its events, and which of them are true.

Events are counted by the rule of `studies.event_metrics`, with the service's own tracker and settings, and a scoring
every 30 s (the longest step that the tracker accepts). An event is true if it opened after the onset of an anomaly in
one of its jobs. A failing disk is not the anomaly of a job: an event on its node is about the disk if the same threads
would not have alarmed at that second with a healthy disk.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Trace, Windows
from clustertwin.telemetry.detection.batch_scoring import score_batches
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.tracker import EventSettings, score_by_chance
from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import LENGTH_S, Moment, assemble, moments
from clustertwin.telemetry.studies.event_metrics import labels_of, match_events, track_events
from clustertwin.telemetry.studies.month.simulated_month import MonthScenario
from clustertwin.telemetry.studies.month.unseen_programs import UNSEEN

_EVENTS = EventSettings()
STRIDE_S = _EVENTS.longest_step_s
_LABELLED_S = 20 * STRIDE_S  # every twentieth scoring is compared with the labels of its threads


@dataclass(frozen=True, slots=True)
class WatchedDay:
    """A day's events, and the truth about them."""

    events: tuple[Event, ...]
    true: frozenset[str]  # ids of the events about a job that went wrong, or about the disk
    disk: frozenset[str]  # ids of the events about the disk
    jobs_wrong: int  # that went on long enough to be counted
    jobs_found: int
    node_days: float
    error: float  # on windows of normal threads
    new_wrong: int = 0  # of `jobs_wrong`, jobs of programs that were never recorded
    new_found: int = 0

    @property
    def false_per_node_day(self) -> float:
        return (len(self.events) - len(self.true)) / self.node_days


def watch_day(
    scenario: MonthScenario,
    detector: Detector,
    healthy: Sequence[Trace],
    actual: Sequence[Trace],
    questions: QuestionMemory | None = None,
) -> WatchedDay:
    """`actual` is what the cluster did, `healthy` what it would have done with a healthy disk.

    `questions` is what earlier days taught about programs; it learns this day.
    """
    scored = _score(detector, actual)
    opened = track_events(scored, detector.threshold, _EVENTS, labels_of(actual), questions)
    counted = match_events(opened, actual)
    unexplained = {event.id for event in counted.false}
    disk_fails = actual is not healthy
    of_new = match_events(opened, [_with_spans_of(trace, UNSEEN) for trace in actual])
    about_disk = {
        event.id
        for opened_s, event in opened
        if event.id in unexplained and scenario.failing_node in event.nodes
        if disk_fails and not _alarms(detector, healthy, event, opened_s)
    }
    return WatchedDay(
        events=tuple(event for _, event in opened),
        true=frozenset({event.id for _, event in opened} - unexplained | about_disk),
        disk=frozenset(about_disk),
        jobs_wrong=counted.total,
        jobs_found=counted.detected,
        node_days=counted.node_days,
        error=_error_on_normal(scenario, actual, {moment.end_s: scores for moment, scores in scored}, disk_fails),
        new_wrong=of_new.total,
        new_found=of_new.detected,
    )


def _with_spans_of(trace: Trace, job_types: Container[str]) -> Trace:
    return replace(trace, spans=tuple(span for span in trace.spans if span.job_type in job_types))


@dataclass(frozen=True, slots=True)
class DiskProbe:
    """A day with the disk at its worst: a detector that learned the failure as normal does not alarm on it."""

    moments: tuple[Moment, ...]
    waiting: tuple[NDArray[np.bool_], ...]  # (thread,) of each moment: does its job wait for the failing disk?

    def recall(self, detector: Detector) -> float:
        """The alarming part of the windows of threads that wait for the disk."""
        scored = score_batches(detector, self.moments)
        score = np.concatenate([scores.score[rows] for scores, rows in zip(scored, self.waiting, strict=True)])
        known = score[~np.isnan(score)]
        return float((known > detector.threshold).mean()) if len(known) else float("nan")


def disk_probe(scenario: MonthScenario, traces: Sequence[Trace]) -> DiskProbe:
    labelled = list(moments(traces, every_s=_LABELLED_S))
    waiting = [
        (labels.node == scenario.failing_node) & np.isin(labels.job_type, scenario.on_disk) for _, labels in labelled
    ]
    return DiskProbe(tuple(moment for moment, _ in labelled), tuple(waiting))


def _score(detector: Detector, traces: Sequence[Trace]) -> list[tuple[Moment, Scores]]:
    live = list(_live_moments(traces))
    return list(zip(live, score_batches(detector, live), strict=True))


def _live_moments(traces: Sequence[Trace]) -> Iterator[Moment]:
    """The moments at which a live loop would have scored; nothing is known before the first second."""
    traces = sorted(traces, key=lambda trace: trace.node)
    padding = ((0, 0), (LENGTH_S, 0))
    values = [np.pad(trace.values, (*padding, (0, 0))) for trace in traces]  # (cpu, LENGTH_S + time, channel)
    valid = [np.pad(trace.valid, padding) for trace in traces]
    start_s, end_s = traces[0].start_s, traces[0].end_s
    for now_s in range(start_s + STRIDE_S, end_s + 1, STRIDE_S):
        last = slice(now_s - start_s, now_s - start_s + LENGTH_S)
        blocks = [(t.node, t.cpus, v[:, last], m[:, last]) for t, v, m in zip(traces, values, valid, strict=True)]
        spans = [span for t in traces for span in t.spans if span.end_s > now_s - LENGTH_S]
        yield assemble(now_s, traces[0].schema, blocks, spans, start_s)


def _alarms(detector: Detector, traces: Sequence[Trace], event: Event, now_s: int) -> bool:
    """Would any thread of this event have scored above the tracker's bar in these traces?"""
    moment, _ = next(moments(traces, first_s=now_s))
    score = detector.score(moment).score
    bar = max(detector.threshold * _EVENTS.margin, score_by_chance(moment, _EVENTS.chance_per_node_day))
    event_threads = {(node, cpu) for node, cpus in event.places for cpu in cpus}
    threads = ((moment.nodes[node], int(cpu)) for node, cpu in zip(moment.node, moment.cpu, strict=True))
    rows = np.array([thread in event_threads for thread in threads], np.bool_)
    return bool((score[rows] > bar).any())


def _error_on_normal(
    scenario: MonthScenario, traces: Sequence[Trace], scored: dict[int, Scores], disk_fails: bool
) -> float:
    errors = []
    for moment, labels in moments(traces, every_s=_LABELLED_S):
        scores = scored[moment.end_s]
        normal = _is_normal(labels) & ~(disk_fails & (labels.node == scenario.failing_node))
        errors.append(scores.error[~np.isnan(scores.score) & normal])
    return float(np.concatenate(errors).mean())


def _is_normal(labels: Windows) -> NDArray[np.bool_]:
    normal: NDArray[np.bool_] = (labels.anomaly == "") & (labels.job_type != "mixed")
    return normal
