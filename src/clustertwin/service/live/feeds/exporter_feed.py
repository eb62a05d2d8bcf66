"""Exporters as a feed: all nodes are queried together, once a second, from the loop's own thread -> traces."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.trace_feeds import ANSWER_S, Stream
from clustertwin.telemetry.ingest.rates import NONE, Faults
from clustertwin.telemetry.ingest.sources.exporter_protocol import ExporterSession
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.http_sweep import HttpSweep

#: `problems` names this many nodes that do not answer, and counts the rest.
NAMED = 10


class ExporterFeed:
    """A node that does not answer in time is named in `problems`. Its answer is used when it arrives."""

    pace, patient = 1.0, False

    def __init__(self, endpoints: Sequence[Endpoint], clock: Callable[[], float] = time.time) -> None:
        self.source = f"{len(endpoints)} exporters"
        self._clock = clock
        self._endpoints = endpoints
        self._sessions = [ExporterSession(endpoint) for endpoint in endpoints]
        self._streams = [Stream() for _ in endpoints]
        self._sweep = HttpSweep(endpoints)
        self._errors: dict[int, str] = {}

    def now_s(self) -> float:
        return self._clock()

    def take(self) -> list[Trace]:
        pending, now_s = self._sweep.pending, self._clock()
        for number in range(len(self._sessions)):
            if number not in pending:
                self._ask(number, now_s)
        traces: list[Trace] = []
        for number, answer in self._sweep.responses(ANSWER_S):
            traces += self._traces(number, answer)
        for number in self._sweep.pending:
            self._errors[number] = f"{self._endpoints[number].url}: has not answered yet"
        return traces

    def _ask(self, number: int, now_s: float) -> None:
        request = self._sessions[number].next_request(now_s)
        self._sweep.request(number, request.path, dict(request.params), request.accept)

    def _traces(self, number: int, answer: bytes | SourceError) -> list[Trace]:
        try:
            if isinstance(answer, SourceError):
                raise answer
            readings = self._sessions[number].receive(answer)
        except SourceError as error:
            self._sessions[number].disconnected()
            self._errors[number] = str(error)
            return []
        self._errors.pop(number, None)
        if readings is None:
            self._ask(number, self._clock())
            return []
        return self._streams[number].push(readings)

    @property
    def faults(self) -> Faults:
        return sum((stream.faults for stream in self._streams), NONE)

    @property
    def problems(self) -> tuple[str, ...]:
        named = tuple(self._errors[number] for number in sorted(self._errors)[:NAMED])
        more = len(self._errors) - len(named)
        return (*named, f"{more} more exporters do not answer") if more > 0 else named

    def close(self) -> None:
        self._sweep.close()


def raise_file_limit(connections: int) -> None:
    """Allow a connection to each exporter: a connection is an open file, and the usual limit is 1,024."""
    needed = connections + 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard) if hard >= 0 else needed, hard))
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] < needed:
        raise SettingsError(
            f"{connections} exporters need {needed} open files, but the limit is {hard}; raise LimitNOFILE"
        )
