"""One node's exporter over HTTP: ours by its ring, others by their /metrics page -> readings, none twice."""

from __future__ import annotations

import time
from collections.abc import Callable

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.ingest.counters import Counters, NodeReading, stack
from clustertwin.telemetry.ingest.sources.exporter_protocol import ExporterRequest, ExporterSession
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient


class Exporter:
    """A live source and, as far back as the ring goes, a history source. For many exporters use `HttpSweep`."""

    def __init__(
        self, endpoint: Endpoint, node: str = "", *, pages: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self.endpoint = endpoint
        self._http, self._clock = HttpClient(endpoint), clock
        self._session = ExporterSession(endpoint, node, pages)

    def readings(self) -> list[NodeReading]:
        """The readings since the last call; the first call returns the newest."""
        while True:
            body = self._get(self._session.next_request(self._clock()))
            readings = self._session.receive(body)
            if readings is not None:
                return readings

    def counters(self, start_s: float, end_s: float) -> list[Counters]:
        """The part of the ring in a range: one node's counters, or an empty list."""
        if not self._session.has_ring:
            self._session.receive(self._get(self._session.next_request(self._clock())))
        if not self._session.has_ring:
            raise SourceError(f"{self.endpoint.url}: keeps no ring; read older samples from Prometheus")
        text = self._get(ExporterRequest("/ring", (("since", f"{start_s:.3f}"),)))
        readings = [reading for reading in self._session.parse_ring(text) if reading.time_s <= end_s]
        return [stack(readings)] if readings else []

    def _get(self, request: ExporterRequest) -> bytes:
        try:
            return self._http.get(request.path, dict(request.params), request.accept)
        except SourceError:
            self._session.disconnected()
            raise
