"""A node's exporter, asked directly: ours by its ring, others by their /metrics page -> readings, none twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from clustertwin.core.errors import ExpositionError, SourceError
from clustertwin.telemetry.counters import Counters, Reading, stack
from clustertwin.telemetry.pages import Pages
from clustertwin.telemetry.sources.blocks import parse_blocks
from clustertwin.telemetry.sources.http import Endpoint, Http

_TEXT = "text/plain;version=0.0.4"
_RING = "twin_exporter_ring_begin_timestamp_seconds"  # who keeps a ring says since when


class Exporter:
    """Live and, as far back as the ring goes, history.

    Our exporter keeps the last ten minutes at one sample a second: each question asks for all that is newer than
    the last answer, so that a slow network or an outage of ours loses nothing. The ring holds threads and jobs;
    where memory and pressure are wanted too (`pages=True`), or for node_exporter, the page itself is read.
    """

    def __init__(
        self, endpoint: Endpoint, node: str = "", *, pages: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self.endpoint = endpoint
        self._http = Http(endpoint)
        self._clock = clock
        self._pages = Pages(node, f"{endpoint.url}/metrics")
        self._has_ring = False if pages else None  # None: not known yet
        self._since_s: float | None = None

    def readings(self) -> list[Reading]:
        """What is new since the last call; the first call gives the newest."""
        if self._has_ring is None:
            self._greet()
        if not self._has_ring:
            return [self._page()]
        if self._since_s is None:
            # A node whose clock is behind ours has nothing so new: then all of it is asked for, once.
            new = (self._blocks(self._clock() - 2) or self._blocks(0))[-1:]
        else:
            new = [reading for reading in self._blocks(self._since_s) if reading.time_s > self._since_s]
        if new:
            self._since_s = new[-1].time_s
        return new

    def counters(self, start_s: float, end_s: float) -> list[Counters]:
        """What the ring holds of a range: one node's counters, or none."""
        if self._has_ring is None:
            self._greet()
        if not self._has_ring:
            raise SourceError(f"{self.endpoint.url}: keeps no ring; ask Prometheus for the past")
        kept = [reading for reading in self._blocks(start_s) if reading.time_s <= end_s]
        return [stack(kept)] if kept else []

    def _greet(self) -> None:
        """Learn the node's name and whether the exporter keeps a ring."""
        self._page()
        self._has_ring = any(sample.name == _RING for sample in self._pages.series)

    def _page(self) -> Reading:
        time_s = self._clock()
        try:
            reading = self._pages.read(self._http.get("/metrics", accept=_TEXT), time_s)
        except ExpositionError as error:
            raise SourceError(str(error)) from None
        return reading if reading.node else replace(reading, node=self.endpoint.host)

    def _blocks(self, since_s: float) -> list[Reading]:
        text = self._http.get("/ring", {"since": f"{since_s:.3f}"})
        return parse_blocks(text, self._pages.node or self.endpoint.host, f"{self.endpoint.url}/ring")
