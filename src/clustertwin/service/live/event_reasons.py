"""Explain events, a few in each turn: changes of events -> the same changes, with an explanation now or later.

An explanation takes milliseconds. If hundreds of events open at once, they are stored first and explained over the next
turns, highest score first, from the latest scores. So a burst neither loses an event nor delays the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clustertwin.telemetry.detection.events.causes import UNUSUAL
from clustertwin.telemetry.detection.events.event import Change, Event
from clustertwin.telemetry.detection.events.event_rows import held_rows, rows_to_explain
from clustertwin.telemetry.detection.events.explanation import Explanation, explain, with_measure
from clustertwin.telemetry.detection.events.explanation_text import title_of
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:  # importing them imports torch, which takes seconds
    from clustertwin.telemetry.detection.detector import Detector
    from clustertwin.telemetry.detection.features.landmarks import Landmarks

#: A turn explains 20 events, however long that takes, and more until 0.3 s have passed.
AT_LEAST, TURN_S = 20, 0.3

Explained = list[tuple[Event, Explanation | None]]


class Reasons:
    """Explains events within the time of a turn, and remembers those that still need an explanation."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pending: dict[str, Event] = {}
        self._landmarks: tuple[str, Landmarks] | None = None  # of a detector's version
        self._findings: dict[tuple[str, str], Finding] = {}  # by job, or by node without one, and by cause
        self._before: dict[str, dict[str, float]] = {}  # of an open event: the means of its threads before it

    def __len__(self) -> int:
        """The number of events that wait for an explanation."""
        return len(self._pending)

    def of(
        self,
        detector: Detector,
        moment: Moment,
        scores: Scores,
        changes: Sequence[Change],
        findings: Sequence[Finding] = (),
    ) -> Explained:
        """Every changed event, with a new explanation if there is time. A closed event keeps its explanation."""
        self._findings = {(found.job or found.node, found.cause): found for found in findings}
        for change in changes:
            if change.kind != "closed" or change.event.id in self._pending:
                self._pending[change.event.id] = change.event
        explained: dict[str, tuple[Event, Explanation | None]] = {
            change.event.id: (change.event, None) for change in changes
        }
        explained |= {event.id: (event, why) for event, why in self.more(detector, moment, scores)}
        for change in changes:
            if change.kind == "closed":
                self._before.pop(change.event.id, None)
        return list(explained.values())

    def more(self, detector: Detector, moment: Moment, scores: Scores) -> Explained:
        """Explain pending events."""
        begun_s, explained = self._clock(), []
        for number, event in enumerate(sorted(self._pending.values(), key=lambda event: (-event.score, event.id))):
            if number >= AT_LEAST and self._clock() - begun_s > TURN_S:
                break
            explained.append(self._explained(detector, moment, scores, self._pending.pop(event.id)))
        return explained

    def _explained(
        self, detector: Detector, moment: Moment, scores: Scores, event: Event
    ) -> tuple[Event, Explanation | None]:
        """The event with a title that has the figures of its explanation.

        While its threads show another cause, it keeps its title and its explanation.
        """
        why = self._why(detector, moment, scores, event)
        if why is None or (why.cause or UNUSUAL) != (event.cause or UNUSUAL):
            return event, None
        self._before.setdefault(event.id, why.before)
        if event.by_finding and not why.by_shape:
            found = self._findings.get((event.job or event.node, event.cause))
            if found is None:
                return event, None  # what it was found by is not known in this second
            why = with_measure(why, found)
        return replace(event, title=title_of(event, why)), why

    def _why(self, detector: Detector, moment: Moment, scores: Scores, event: Event) -> Explanation | None:
        nearby = rows_to_explain(moment, event)
        part = moment.take(nearby)
        before = self._before.get(event.id)
        rows = held_rows(part, event)
        return explain(detector, part, scores.take(nearby), rows, self._landmarks_of(detector), event, before)

    def _landmarks_of(self, detector: Detector) -> Landmarks:
        """The known job types in this detector's embedding, computed for its first event."""
        from clustertwin.telemetry.detection.features.landmarks import find_landmarks
        from clustertwin.telemetry.simulation.signature import read_signatures

        if self._landmarks is None or self._landmarks[0] != detector.version:
            self._landmarks = detector.version, find_landmarks(detector.stored, read_signatures())
        return self._landmarks[1]
