"""What would alarm: a detector and moments -> the jobs whose scores, or whose findings, would open an event.

An operator sees events, not windows. A moment is five minutes of each thread: one look at each job, and at the threads
of each node without one. A look is above the bar if the score of any of its threads is. That is what a detector alone
says about a job, and what a duel compares. Events are opened by findings, which need more than a score: `raised` counts
them, with no more past than the five minutes of the moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.batch_scoring import score_batches
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.tracker import EventSettings
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.learning.duel.imposed_faults import cpu_columns
from clustertwin.telemetry.moments.moment import LENGTH_S, WINDOW_S, Moment

LOOKS_PER_DAY = 86_400 / LENGTH_S
_EVENTS = EventSettings()
MOST_IOWAIT = 0.4  # mean iowait above which a job visibly loses its time
_DOES_NOTHING = 0.02  # mean of user and system of a job that visibly does nothing


@dataclass(frozen=True, slots=True)
class ThreadGroup:
    """One job, or the threads of a node without one, at one moment."""

    rows: NDArray[np.intp]  # its threads in the moment
    has_job: bool


def event_bar(detector: Detector, node_threads: int) -> float:
    """The score above which a thread of such a node alarms, as in the event tracker."""
    windows_per_day = max(node_threads, 1) * 86_400 / WINDOW_S
    return max(detector.threshold * _EVENTS.margin, float(np.log10(windows_per_day / _EVENTS.chance_per_node_day)))


def largest_node(moments: Sequence[Moment]) -> int:
    """The number of threads of the largest node."""
    return max((int(np.bincount(moment.node).max()) for moment in moments if len(moment)), default=0)


def looks(moment: Moment) -> Iterator[ThreadGroup]:
    group = np.where(moment.job >= 0, moment.job, -1 - moment.node)
    for number in np.unique(group).tolist():
        yield ThreadGroup(np.flatnonzero(group == number), number >= 0)


def above_bar(scores: Scores, look: ThreadGroup, bar: float) -> bool | None:
    """Is a thread of this look above the bar? None: no score is known."""
    score = scores.score[look.rows]
    known = score[~np.isnan(score)]
    return bool(known.max() > bar) if len(known) else None


def raised(moment: Moment, scores: Scores, threshold: float) -> set[str]:
    """The jobs, and the nodes of threads without one, that have a finding which would open an event."""
    from clustertwin.telemetry.detection.questions.assess import assess  # its import compiles
    from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory

    findings = assess(moment, scores, QuestionMemory(), threshold).findings
    return {finding.job or finding.node for finding in findings if finding.opens_event}


def visibly_harmed(moment: Moment, look: ThreadGroup) -> bool:
    """Does this look lose its time in a way that needs no comparison: waiting for a disk, or a job that does nothing?

    An alarm on it is not counted as false, and no fault is imposed on it, unless a person called it normal.
    """
    ratios = moment.values[look.rows][..., cpu_columns(moment.schema)][moment.valid[look.rows]].mean(0)
    return bool(ratios[2] >= MOST_IOWAIT or (look.has_job and ratios[0] + ratios[1] <= _DOES_NOTHING))


def scored(detector: Detector, moments: Sequence[Moment]) -> Iterator[tuple[Moment, Scores]]:
    yield from zip(moments, score_batches(detector, moments), strict=True)
