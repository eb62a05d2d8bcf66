"""The protocol of one exporter without the network: a clock -> the next request; a response -> new readings.

The first request is for the page, which has the node's name and shows whether the exporter keeps a ring. Ours does:
each later request is for the part of the ring that is newer than the last response, so that a slow network or an
outage loses nothing. From node_exporter the page itself is requested each time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustertwin.core.errors import ExpositionError, SourceError
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.metrics_page import PageReader
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.ring_blocks import RingReader

_TEXT = "text/plain;version=0.0.4"
_RING = "twin_exporter_ring_begin_timestamp_seconds"  # an exporter with a ring has this metric
_MOMENT_S = 0.001  # the resolution of times in a ring
_RECENT_S = 2.0  # the first request for a ring asks for this much
_QUIET_S = 0.9  # after this long without news, older samples are requested too: the clock may have been set back
_SET_BACK_S = 1.0  # the newest sample of a ring is this much older than a sample that it had: its clock was set back
_SILENT_S = 10.0  # a ring without news for this long may belong to a clock that is far behind ours
#: After this many requests for a ring in a row without a usable answer, only its newest part is requested: what was
#: missed in an outage may be longer than an answer may be.
_MOST_FAILURES = 5


@dataclass(frozen=True, slots=True)
class ExporterRequest:
    path: str
    params: tuple[tuple[str, str], ...] = ()
    accept: str = "*/*"


class ExporterSession:
    """The requests to one exporter. With `pages` it reads pages even if there is a ring, as for older exporters,
    whose rings have no node channels."""

    def __init__(self, endpoint: Endpoint, node: str = "", pages: bool = False) -> None:
        self.endpoint = endpoint
        self._pages = PageReader(node, f"{endpoint.url}/metrics")
        self._ring = RingReader(node, f"{endpoint.url}/ring")
        self._wants_ring, self._has_ring = not pages, False
        self._is_ring_request = False  # of the request that was made last
        self._everything = False  # the ring has nothing recent, because its clock is behind ours: request all of it
        self._since_s: float | None = None  # time of the newest reading in the ring so far
        self._returned_s: float | None = None  # time of the newest reading that was returned
        self._failures = 0  # requests for the ring in a row that had no usable answer
        self._requested_s = self._news_s = 0.0

    @property
    def has_ring(self) -> bool:
        """Known after the first response."""
        return self._has_ring

    @property
    def node(self) -> str:
        return self._pages.node or self.endpoint.host

    def next_request(self, now_s: float) -> ExporterRequest:
        is_quiet = self._requested_s - self._news_s > _QUIET_S
        self._requested_s, self._is_ring_request = now_s, self._has_ring
        if not self._has_ring:
            return ExporterRequest("/metrics", accept=_TEXT)
        if self._since_s is not None:
            since_s = self._since_s + _MOMENT_S  # `since` is inclusive, and that reading is known
            if is_quiet:
                since_s = min(since_s, now_s - _RECENT_S)
        else:
            since_s = 0.0 if self._everything else now_s - _RECENT_S
        return ExporterRequest("/ring", (("since", f"{since_s:.3f}"),))

    def receive(self, body: bytes) -> list[NodeReading] | None:
        """The new readings; None if another request must be made first; SourceError if the body is not readable."""
        if not self._is_ring_request:
            return self._receive_page(body)
        readings, since_s, self._failures = self.parse_ring(body), self._since_s, 0
        # A ring is in the order of its samples: one that is later than the last is from before a clock was set back.
        readings = [reading for reading in readings if reading.time_s <= readings[-1].time_s]
        if since_s is not None and readings and readings[-1].time_s < since_s - _SET_BACK_S:
            since_s = self._since_s = None
        if since_s is not None:
            readings = [reading for reading in readings if reading.time_s > since_s]
        elif not readings and not self._everything:
            self._everything = True
            return None
        else:
            self._everything = False
            readings = [reading for reading in readings[-1:] if reading.time_s != self._returned_s]
        if readings:
            self._since_s = self._returned_s = readings[-1].time_s
            self._news_s = self._requested_s
        elif self._requested_s - self._news_s > _SILENT_S:
            self._since_s = None
        return readings

    def parse_ring(self, body: bytes) -> list[NodeReading]:
        """All readings in the text of the ring."""
        self._ring.node = self.node
        return self._ring.read(body)

    def disconnected(self) -> None:
        """There was no usable response. Another exporter may answer next, so the page is requested again."""
        self._has_ring = False
        self._failures += self._is_ring_request
        if self._failures >= _MOST_FAILURES:
            self._since_s, self._failures = None, 0

    def _receive_page(self, body: bytes) -> list[NodeReading] | None:
        before = self.node
        try:
            reading = self._pages.read(body, self._requested_s)
        except ExpositionError as error:
            if self.node != before:  # what was read so far is of another node
                self._since_s = self._returned_s = None
                self._everything = False
            raise SourceError(str(error)) from None
        self._has_ring = self._wants_ring and any(sample.name == _RING for sample in self._pages.series)
        self._ring.exporter_node = self._pages.exporter_node
        if self._has_ring:  # the page is no news of the ring, whose clock may have been set back meanwhile
            return None
        self._news_s = self._requested_s
        return [reading if reading.node else replace(reading, node=self.endpoint.host)]
