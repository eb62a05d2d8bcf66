"""Watch a simulated day as the live service does: a champion, the traces -> its events, and which of them are true.

Events are counted by the one rule of `detection.event_study`, with the service's own settings: the ring, the tracker,
and a scoring every 30 s, the longest step for which a score speaks in full. True is what opened after the onset of an
anomaly in a job of its own. A failing disk is no job's anomaly: an event of its node is about the disk if the same
threads, in the second in which it opened, would not have alarmed with a sound disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clustertwin.core.traces import Trace, Windows
from clustertwin.telemetry.continual.world import World
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.event_study import judge, score_all, track
from clustertwin.telemetry.detection.events import Event, EventSettings, by_chance
from clustertwin.telemetry.detection.moment import moments
from clustertwin.telemetry.detection.scores import Scores

_EVENTS = EventSettings()
STRIDE_S = _EVENTS.longest_step_s
_LABELLED_S = 10 * STRIDE_S  # every tenth scoring is compared with what each thread truly did


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
    scored = list(score_all(detector, lived, STRIDE_S))
    opened = track(scored, detector.threshold, _EVENTS)
    result = judge(opened, lived)
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
        jobs_wrong=result.there,
        jobs_found=result.seen,
        node_days=result.node_days,
        error=_error_on_normal(world, lived, {m.end_s: scores for m, scores in scored}, lived is not sound),
    )


def sight_of_disk(world: World, detector: Detector, traces: Sequence[Trace]) -> float:
    """Of the windows of those who wait for the failing disk, the part that alarms."""
    found = []
    for moment, labels in moments(traces, every_s=_LABELLED_S):
        score = detector.score(moment).score
        waits = (labels.node == world.creeping_node) & np.isin(labels.job_type, world.on_disk)
        found.append(score[waits & ~np.isnan(score)] > detector.threshold)
    return float(np.concatenate(found).mean())


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
