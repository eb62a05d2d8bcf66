"""What to ask an exporter next, and what its answers say: a clock -> a question; a body -> readings, none twice.

First its page, which tells the node's name and whether it keeps a ring. Our exporter does: from then on each question
asks for all that is newer than the last answer, so that a slow network or an outage of ours loses nothing. Of
node_exporter the page itself is read, again and again. Nothing here touches a network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustertwin.core.errors import ExpositionError, SourceError
from clustertwin.telemetry.ingest.counters import Reading
from clustertwin.telemetry.ingest.metrics_page import Pages
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.ring_blocks import Blocks

_TEXT = "text/plain;version=0.0.4"
_RING = "twin_exporter_ring_begin_timestamp_seconds"  # who keeps a ring says since when
_MOMENT_S = 0.001  # times in a ring are in milliseconds
_RECENT_S = 2.0  # the first question to a ring asks for no more than this
_SILENT_S = 10.0  # a ring without news for so long may be of a clock that was set back


@dataclass(frozen=True, slots=True)
class Question:
    path: str
    params: tuple[tuple[str, str], ...] = ()
    accept: str = "*/*"


class Talk:
    """With one exporter. `pages` asks for no ring: only the page has memory and pressure."""

    def __init__(self, endpoint: Endpoint, node: str = "", pages: bool = False) -> None:
        self.endpoint = endpoint
        self._pages = Pages(node, f"{endpoint.url}/metrics")
        self._blocks = Blocks(node, f"{endpoint.url}/ring")
        self._wants_ring, self._has_ring = not pages, False
        self._asks_ring = False  # the question in flight
        self._everything = False  # the ring holds nothing recent: its clock is behind ours
        self._since_s: float | None = None  # of the newest reading in the ring so far
        self._given_s: float | None = None  # of the newest reading that was given
        self._asked_s = self._news_s = 0.0

    @property
    def has_ring(self) -> bool:
        """Known after the first answer."""
        return self._has_ring

    @property
    def node(self) -> str:
        return self._pages.node or self.endpoint.host

    def question(self, now_s: float) -> Question:
        self._asked_s, self._asks_ring = now_s, self._has_ring
        if not self._has_ring:
            return Question("/metrics", accept=_TEXT)
        if self._since_s is not None:
            since_s = self._since_s + _MOMENT_S  # the ring answers from a time on, and we have that one
        else:
            since_s = 0.0 if self._everything else now_s - _RECENT_S
        return Question("/ring", (("since", f"{since_s:.3f}"),))

    def answer(self, body: bytes) -> list[Reading] | None:
        """What is new, or None where another question must be asked first; SourceError for what makes no sense."""
        if not self._asks_ring:
            return self._greeted(self._page(body))
        found, since_s = self.past(body), self._since_s
        if since_s is not None:
            found = [reading for reading in found if reading.time_s > since_s]
        elif not found and not self._everything:
            self._everything = True
            return None
        else:
            self._everything = False
            found = [reading for reading in found[-1:] if reading.time_s != self._given_s]
        if found:
            self._since_s = self._given_s = found[-1].time_s
            self._news_s = self._asked_s
        elif self._asked_s - self._news_s > _SILENT_S:
            self._since_s = None
        return found

    def past(self, body: bytes) -> list[Reading]:
        """All that a ring's text holds."""
        self._blocks.node = self.node
        return self._blocks.read(body)

    def lost(self) -> None:
        """It did not answer. Whoever answers next may be another: greet it again."""
        self._has_ring = False

    def _greeted(self, reading: Reading) -> list[Reading] | None:
        self._has_ring = self._wants_ring and any(sample.name == _RING for sample in self._pages.series)
        self._news_s = self._asked_s
        return None if self._has_ring else [reading]

    def _page(self, body: bytes) -> Reading:
        try:
            reading = self._pages.read(body, self._asked_s)
        except ExpositionError as error:
            raise SourceError(str(error)) from None
        return reading if reading.node else replace(reading, node=self.endpoint.host)
