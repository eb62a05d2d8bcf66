"""Where closed events lie in the embedding: cases and their archived seconds -> embeddings by the model in service.

Embeddings of different models cannot be compared, and the model can change every night. So they are not stored, but
computed again from the event's archived seconds, in the background.
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
from clustertwin.telemetry.detection.events.event_rows import rows_of
from clustertwin.telemetry.moments.moment import WINDOW_S, moments
from clustertwin.telemetry.recording.trace_archive import TraceArchive

if TYPE_CHECKING:  # importing it imports torch, which takes seconds
    from clustertwin.telemetry.detection.detector import Detector

RETRY_S = 60.0  # after the archive did not answer
MOST_THREADS = 32  # of an event; enough to show its extent

Place = NDArray[np.float32]  # (thread, latent)
_UNKNOWN: Place = np.empty((0, 0), np.float32)


def event_embeddings(detector: Detector, past: TraceArchive, case: Case) -> Place:
    """Embed the window that explains the event; empty if its seconds are gone."""
    from clustertwin.telemetry.detection.features.inference import infer

    event, end_s = case.event, case.why.end_s if case.why else case.event.seen_s
    traces = past.traces(end_s - WINDOW_S, end_s, event.nodes)
    for moment, _ in moments(traces, length_s=WINDOW_S, first_s=end_s):
        rows = rows_of(moment, event)
        known = rows[moment.valid[rows].mean(1) >= detector.settings.enough]
        threads, wanted = moment.with_peers(known[:MOST_THREADS])
        return infer(detector.stored, threads)[0][wanted] if len(wanted) else _UNKNOWN
    return _UNKNOWN


class ClosedEventPlaces:
    """Caches the embeddings of closed events for one model. One background thread computes the missing ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._model = ""
        self._places: dict[str, Place] = {}
        self._worker: Thread | None = None
        self._not_before_s = 0.0

    def of(self, detector: Detector, past: TraceArchive | None, cases: Sequence[Case]) -> list[tuple[Case, Place]]:
        """The cases whose embeddings are known by now."""
        if detector.version != self._model:
            self._model, self._places = detector.version, {}
        missing = [case for case in cases if case.id not in self._places]
        idle = self._worker is None or not self._worker.is_alive()
        if missing and past is not None and idle and self._clock() >= self._not_before_s:
            self._worker = Thread(target=self._compute, args=(detector, past, missing, self._places), daemon=True)
            self._worker.start()
        return [(case, place) for case in cases if len(place := self._places.get(case.id, _UNKNOWN))]

    def _compute(self, detector: Detector, past: TraceArchive, cases: Sequence[Case], places: dict[str, Place]) -> None:
        try:
            for case in cases:
                places[case.id] = event_embeddings(detector, past, case)
        except TwinError:
            self._not_before_s = self._clock() + RETRY_S
