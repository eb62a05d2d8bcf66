"""A node's exporter, asked directly: ours by its ring, others by their /metrics page -> readings, none twice."""

from __future__ import annotations

import time
from collections.abc import Callable

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.ingest.counters import Counters, Reading, stack
from clustertwin.telemetry.ingest.sources.exporter_protocol import Question, Talk
from clustertwin.telemetry.ingest.sources.http import Endpoint, Http


class Exporter:
    """Live and, as far back as the ring goes, history. Many exporters at once are better asked by a `Sweep`."""

    def __init__(
        self, endpoint: Endpoint, node: str = "", *, pages: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self.endpoint = endpoint
        self._http, self._clock = Http(endpoint), clock
        self._talk = Talk(endpoint, node, pages)

    def readings(self) -> list[Reading]:
        """What is new since the last call; the first call gives the newest."""
        while True:
            body = self._ask(self._talk.question(self._clock()))
            found = self._talk.answer(body)
            if found is not None:
                return found

    def counters(self, start_s: float, end_s: float) -> list[Counters]:
        """What the ring holds of a range: one node's counters, or none."""
        if not self._talk.has_ring:
            self._talk.answer(self._ask(self._talk.question(self._clock())))
        if not self._talk.has_ring:
            raise SourceError(f"{self.endpoint.url}: keeps no ring; ask Prometheus for the past")
        text = self._ask(Question("/ring", (("since", f"{start_s:.3f}"),)))
        kept = [reading for reading in self._talk.past(text) if reading.time_s <= end_s]
        return [stack(kept)] if kept else []

    def _ask(self, question: Question) -> bytes:
        try:
            return self._http.get(question.path, dict(question.params), question.accept)
        except SourceError:
            self._talk.lost()
            raise
