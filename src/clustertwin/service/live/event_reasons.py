"""Reasons for events, some in each turn: changes of events -> each with its reason, or with one that follows later.

A reason takes milliseconds. When hundreds of events open at once they are written down first, and are explained turn
by turn, the strangest first, from the latest scores: a burst neither loses an event nor stops the watching.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from clustertwin.telemetry.detection.events.event import Change, Event
from clustertwin.telemetry.detection.events.explanation import Explanation, explain, rows_of, rows_to_explain
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:  # with them comes torch, which takes seconds
    from clustertwin.telemetry.detection.detector import Detector
    from clustertwin.telemetry.detection.features.landmarks import Landmarks

#: So many events are explained in a turn however long that takes, and more until the time is up.
AT_ONCE, TURN_S = 20, 0.3

Told = list[tuple[Event, Explanation | None]]


class Reasons:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._owed: dict[str, Event] = {}  # as last told of
        self._places: tuple[str, Landmarks] | None = None  # of a detector's version

    def __len__(self) -> int:
        """How many events wait for theirs."""
        return len(self._owed)

    def of(self, detector: Detector, moment: Moment, scores: Scores, changes: Sequence[Change]) -> Told:
        """Each change, with the reason of now as far as there is time; a closing event keeps the one it has."""
        for change in changes:
            if change.kind != "closed" or change.event.id in self._owed:
                self._owed[change.event.id] = change.event
        told: dict[str, tuple[Event, Explanation | None]] = {
            change.event.id: (change.event, None) for change in changes
        }
        told |= {event.id: (event, why) for event, why in self.more(detector, moment, scores)}
        return list(told.values())

    def more(self, detector: Detector, moment: Moment, scores: Scores) -> Told:
        """Reasons that are owed."""
        begun_s, told = self._clock(), []
        for number, event in enumerate(sorted(self._owed.values(), key=lambda event: (-event.score, event.id))):
            if number >= AT_ONCE and self._clock() - begun_s > TURN_S:
                break
            told.append((self._owed.pop(event.id), self._why(detector, moment, scores, event)))
        return told

    def _why(self, detector: Detector, moment: Moment, scores: Scores, event: Event) -> Explanation | None:
        near = rows_to_explain(moment, event)
        small = moment.take(near)
        rows = rows_of(small, event)
        return explain(detector, small, scores.take(near), rows, self._places_of(detector))

    def _places_of(self, detector: Detector) -> Landmarks:
        """The known places in this detector's embedding; drawn when its first event asks for them."""
        from clustertwin.telemetry.detection.features.landmarks import find_landmarks
        from clustertwin.telemetry.simulation.signature import read_signatures

        if self._places is None or self._places[0] != detector.version:
            self._places = detector.version, find_landmarks(detector.stored, read_signatures())
        return self._places[1]
