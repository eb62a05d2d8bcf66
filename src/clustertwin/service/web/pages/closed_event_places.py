"""Where events that are over lie in the embedding: cases and their kept seconds -> places by the model that scores now.

A place belongs to one model, and models change by night: so it is not stored but made again from the event's own
seconds, in the background, as far as somebody still keeps them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TwinError
from clustertwin.service.store.event_store import Case
from clustertwin.telemetry.detection.events.explanation import rows_of
from clustertwin.telemetry.moments.moment import WINDOW_S, moments
from clustertwin.telemetry.recording.trace_archive import TraceArchive

if TYPE_CHECKING:  # with it comes torch, which takes seconds
    from clustertwin.telemetry.detection.detector import Detector

AGAIN_S = 60.0  # after a past that did not answer
MOST_THREADS = 32  # of an event; they show its extent

Place = NDArray[np.float32]  # (thread, latent)


def whereabouts(detector: Detector, past: TraceArchive, case: Case) -> Place:
    """An event's threads in the window that gave its reason; none where those seconds are gone."""
    from clustertwin.telemetry.detection.features.inference import infer

    event, end_s = case.event, case.why.end_s if case.why else case.event.seen_s
    traces = past.traces(end_s - WINDOW_S, end_s, event.nodes)
    for moment, _ in moments(traces, length_s=WINDOW_S, first_s=end_s):
        rows = rows_of(moment, event)
        known = rows[moment.valid[rows].mean(1) >= detector.settings.enough]
        few, mine = moment.with_peers(known[:MOST_THREADS])
        return infer(detector.stored, few)[0][mine] if len(mine) else _NOWHERE
    return _NOWHERE


_NOWHERE: Place = np.empty((0, 0), np.float32)


class Whereabouts:
    """Remembers the places of one model; those it does not know yet are looked up by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._model = ""
        self._found: dict[str, Place] = {}
        self._looking: Thread | None = None
        self._not_before_s = 0.0

    def of(self, detector: Detector, past: TraceArchive | None, cases: Sequence[Case]) -> list[tuple[Case, Place]]:
        """Those that are known by now."""
        if detector.version != self._model:
            self._model, self._found = detector.version, {}
        missing = [case for case in cases if case.id not in self._found]
        idle = self._looking is None or not self._looking.is_alive()
        if missing and past is not None and idle and self._clock() >= self._not_before_s:
            self._looking = Thread(target=self._look, args=(detector, past, missing, self._found), daemon=True)
            self._looking.start()
        return [(case, place) for case in cases if len(place := self._found.get(case.id, _NOWHERE))]

    def _look(self, detector: Detector, past: TraceArchive, cases: Sequence[Case], found: dict[str, Place]) -> None:
        try:
            for case in cases:
                found[case.id] = whereabouts(detector, past, case)
        except TwinError:
            self._not_before_s = self._clock() + AGAIN_S
