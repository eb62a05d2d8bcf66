"""Watch a simulated day as the live service does: a champion, the traces -> its events, and which of them are true.

Events are counted by the one rule of `studies.event_metrics`, with the service's own tracker and settings and a scoring
every 30 s, the longest step for which a score speaks in full. True is what opened after the onset of an anomaly in a
job of its own. A failing disk is no job's anomaly: an event of its node is about the disk if the same
threads, in the second in which it opened, would not have alarmed with a sound disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Trace, Windows
from clustertwin.telemetry.detection.batch_scoring import score_together
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.tracker import Event, EventSettings, by_chance
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import LENGTH_S, Moment, assemble, moments
from clustertwin.telemetry.studies.event_metrics import match_events, track_events
from clustertwin.telemetry.studies.month.simulated_month import World

_EVENTS = EventSettings()
STRIDE_S = _EVENTS.longest_step_s
_LABELLED_S = 20 * STRIDE_S  # every twentieth scoring is compared with what each thread truly did


@dataclass(frozen=True, slots=True)
class Watched:
    """A day, as people see it and as it was."""

    events: tuple[Event, ...]
    true: frozenset[str]  # ids of those about a job gone wrong, or about the disk
    disk: frozenset[str]  # … about the disk
    jobs_wrong: int  # that went on for long enough to be looked for
    jobs_found: int
    node_days: float
    error: float  # on windows of threads that were truly normal

    @property
    def false_per_node_day(self) -> float:
        return (len(self.events) - len(self.true)) / self.node_days


def watch(world: World, detector: Detector, sound: Sequence[Trace], lived: Sequence[Trace]) -> Watched:
    """`lived` is what the cluster did, `sound` what it would have done with a good disk."""
    scored = _scored(detector, lived)
    opened = track_events(scored, detector.threshold, _EVENTS)
    result = match_events(opened, lived)
    unexplained = {event.id for event in result.false}
    failing = [
        event.id
        for opened_s, event in opened
        if event.id in unexplained and world.creeping_node in event.nodes
        if lived is not sound and not _alarms(detector, sound, event, opened_s)
    ]
    everything = {event.id for _, event in opened}
    return Watched(
        events=tuple(event for _, event in opened),
        true=frozenset(everything - unexplained | set(failing)),
        disk=frozenset(failing),
        jobs_wrong=result.total,
        jobs_found=result.detected,
        node_days=result.node_days,
        error=_error_on_normal(world, lived, {m.end_s: scores for m, scores in scored}, lived is not sound),
    )


@dataclass(frozen=True, slots=True)
class Probe:
    """A day whose disk is as bad as it gets: who has learned the failure is silent here."""

    moments: tuple[Moment, ...]
    waiting: tuple[NDArray[np.bool_], ...]  # (thread,) of each moment: a job that waits for the failing disk

    def sight(self, detector: Detector) -> float:
        """Of the windows of those who wait, the part that alarms."""
        scored = score_together(detector, self.moments)
        score = np.concatenate([one.score[mine] for one, mine in zip(scored, self.waiting, strict=True)])
        return float((score[~np.isnan(score)] > detector.threshold).mean())


def probe(world: World, traces: Sequence[Trace]) -> Probe:
    found = list(moments(traces, every_s=_LABELLED_S))
    waiting = [(one.node == world.creeping_node) & np.isin(one.job_type, world.on_disk) for _, one in found]
    return Probe(tuple(moment for moment, _ in found), tuple(waiting))


def _scored(detector: Detector, traces: Sequence[Trace]) -> list[tuple[Moment, Scores]]:
    seen = list(_as_they_came(traces))
    return list(zip(seen, score_together(detector, seen), strict=True))


def _as_they_came(traces: Sequence[Trace]) -> Iterator[Moment]:
    """The moments at which a live loop would have scored; before the first second nothing is known."""
    traces = sorted(traces, key=lambda trace: trace.node)
    before = ((0, 0), (LENGTH_S, 0))
    values = [np.pad(trace.values, (*before, (0, 0))) for trace in traces]  # (cpu, LENGTH_S + time, channel)
    valid = [np.pad(trace.valid, before) for trace in traces]
    start_s, end_s = traces[0].start_s, traces[0].end_s
    for now_s in range(start_s + STRIDE_S, end_s + 1, STRIDE_S):
        last = slice(now_s - start_s, now_s - start_s + LENGTH_S)
        blocks = [(t.node, t.cpus, v[:, last], m[:, last]) for t, v, m in zip(traces, values, valid, strict=True)]
        spans = [span for t in traces for span in t.spans if span.end_s > now_s - LENGTH_S]
        yield assemble(now_s, traces[0].schema, blocks, spans, start_s)


def _alarms(detector: Detector, traces: Sequence[Trace], event: Event, now_s: int) -> bool:
    """Would any thread of this event have been above the bar in these traces?"""
    moment, _ = next(moments(traces, first_s=now_s))
    score = detector.score(moment).score
    bar = max(detector.threshold * _EVENTS.margin, by_chance(moment, _EVENTS.chance_per_node_day))
    places = {(node, cpu) for node, cpus in event.places for cpu in cpus}
    names = ((moment.nodes[n], int(c)) for n, c in zip(moment.node, moment.cpu, strict=True))
    mine = np.array([name in places for name in names], np.bool_)
    return bool((score[mine] > bar).any())


def _error_on_normal(world: World, traces: Sequence[Trace], scored: dict[int, Scores], failing: bool) -> float:
    errors = []
    for moment, labels in moments(traces, every_s=_LABELLED_S):
        scores = scored[moment.end_s]
        errors.append(
            scores.error[~np.isnan(scores.score) & _normal(labels) & ~(failing & (labels.node == world.creeping_node))]
        )
    return float(np.concatenate(errors).mean())


def _normal(labels: Windows) -> np.ndarray:
    normal: np.ndarray = (labels.anomaly == "") & (labels.job_type != "mixed")
    return normal
