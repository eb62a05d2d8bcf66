"""Exporters as a feed: all nodes are queried together, once a second, from the loop's own thread -> traces.

A usual answer is parsed in a fraction of a millisecond. A long one, such as the ring after an outage or the page of a
faulty exporter, is parsed in another thread, and its exporter is asked less often, so that it delays no other.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from clustertwin.core.errors import SettingsError, SourceError, describe
from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.contract import first_problems
from clustertwin.service.live.feeds.live_feed import ANSWER_S
from clustertwin.service.live.feeds.reading_stream import Stream
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.rates import NONE, Faults
from clustertwin.telemetry.ingest.sources.exporter_protocol import ExporterSession
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.http_sweep import HttpSweep

#: A longer answer is parsed in another thread. A second of 1,000 threads has about 60 KB, their whole page 400 KB.
INLINE_BYTES = 512 << 10
#: An exporter whose answer took some time to parse is asked again after this many times that time, …
REST = 10
#: … and after as long as its bytes take at this speed, because receiving them takes time too, …
REST_BYTES_PER_S = 4 << 20
#: … and at most after this long. So a single exporter uses a tenth of one processor at most.
LONGEST_REST_S = 30.0
#: A short answer counts too, if parsing took this long twice in a row: the first time, it may be the compiler.
COSTLY_S = 0.05
#: An exporter that has not answered is named after two seconds: one slow answer on a busy machine is no problem.
LATE_S = 0.9
#: An exporter is named after this many answers in a row that gave no second of data.
UNUSED_ANSWERS = 10
#: A node name belongs to the exporter that used it first, until that one has been silent for this long.
NAME_HELD_S = 300.0

#: Jobs of all seconds of long answers that are used in one turn, which takes 0.1 s. Later turns use the rest.
MOST_JOB_SECONDS = 20_000

Parsed = tuple[list[NodeReading] | Exception | None, float]  # the readings, and how long to rest


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
        self._pool = ThreadPoolExecutor(1, "parse")
        self._parsing: dict[int, Future[Parsed]] = {}
        self._backlog: dict[int, list[NodeReading]] = {}  # what is left of long answers
        self._rest_until_s: dict[int, float] = {}
        self._costly: Counter[int] = Counter()  # short answers of an exporter in a row that took long to parse
        self._late_s: dict[int, float] = {}  # the exporters that have not answered, and since when
        self._holders: dict[str, tuple[int, float]] = {}  # node -> its exporter, and when that answered
        self._names: dict[int, str] = {}  # the node of each exporter
        self._unused: Counter[int] = Counter()  # answers of an exporter since it gave a second of data

    def now_s(self) -> float:
        return self._clock()

    def take(self) -> list[Trace]:
        pending, now_s = self._sweep.pending, self._clock()
        for number in range(len(self._sessions)):
            is_busy = number in pending or number in self._parsing or number in self._backlog
            if not is_busy and not self._rests(number, now_s):
                self._ask(number, now_s)
        traces: list[Trace] = []
        for number in [number for number, parsing in self._parsing.items() if parsing.done()]:
            self._parsed(number, self._parsing.pop(number))
        traces += self._from_backlog()
        for number, answer in self._sweep.responses(ANSWER_S):
            traces += self._traces(number, answer)
        self._late_s = {number: self._late_s.get(number, now_s) for number in self._sweep.pending}
        for number, since_s in self._late_s.items():
            if abs(now_s - since_s) >= LATE_S:
                self._errors[number] = f"{self._endpoints[number].url}: has not answered yet"
        for number, answers in self._unused.items():
            if number not in self._errors and answers >= UNUSED_ANSWERS:
                url = self._endpoints[number].url
                self._errors[number] = f"{url}: answers, but no second of it can be used: samples are missing or jump"
        return traces

    def _ask(self, number: int, now_s: float) -> None:
        request = self._sessions[number].next_request(now_s)
        self._sweep.request(number, request.path, dict(request.params), request.accept)

    def _rests(self, number: int, now_s: float) -> bool:
        until_s = self._rest_until_s.get(number, 0.0)
        return until_s - LONGEST_REST_S <= now_s < until_s  # the first condition: the clock may have been set back

    def _traces(self, number: int, answer: bytes | SourceError) -> list[Trace]:
        if isinstance(answer, SourceError):
            return self._failed(number, answer)
        if len(answer) > INLINE_BYTES:
            self._parsing[number] = self._pool.submit(_parse, self._sessions[number], answer)
            return []
        readings, rest_s = _parse(self._sessions[number], answer)
        self._costly[number] = self._costly[number] + 1 if rest_s > REST * COSTLY_S else 0
        if self._costly[number] > 1:
            self._rest_until_s[number] = self._clock() + min(rest_s, LONGEST_REST_S)
        # One faulty exporter must not stop the others.
        return self._failed(number, readings) if isinstance(readings, Exception) else self._accept(number, readings)

    def _parsed(self, number: int, parsing: Future[Parsed]) -> None:
        """Keep the readings of an answer that was parsed in the other thread."""
        readings, rest_s = parsing.result()
        self._rest_until_s[number] = self._clock() + min(rest_s, LONGEST_REST_S)
        if isinstance(readings, Exception):
            self._failed(number, readings)
        elif readings is None:
            self._accept(number, None)
        else:
            self._backlog[number] = readings

    def _from_backlog(self) -> list[Trace]:
        """As many of the kept readings as one turn can use. The exporters take turns."""
        traces: list[Trace] = []
        room = MOST_JOB_SECONDS
        for number in list(self._backlog):
            if room <= 0:
                break
            readings = self._backlog.pop(number)
            used = 0
            while used < len(readings) and room > 0:
                room -= 1 + len(readings[used].jobs)
                used += 1
            if used < len(readings):
                self._backlog[number] = readings[used:]
            traces += self._accept(number, readings[:used])
        return traces

    def _accept(self, number: int, readings: list[NodeReading] | None) -> list[Trace]:
        self._errors.pop(number, None)
        if readings is None:
            self._ask(number, self._clock())
            return []
        try:
            self._hold_name(number)
            traces = self._streams[number].push(readings)
            self._unused[number] = 0 if traces else self._unused[number] + 1
            return traces
        except Exception as error:
            self._streams[number] = Stream()
            self._backlog.pop(number, None)
            return self._failed(number, error)

    def _hold_name(self, number: int) -> None:
        """Refuse a second exporter of one name: the values of both would be mixed in one node."""
        node, now_s = self._sessions[number].node, self._clock()
        before = self._names.get(number, node)
        if before != node and self._holders.get(before, (-1, 0.0))[0] == number:
            del self._holders[before]  # another node answers here now
        self._names[number] = node
        holder, heard_s = self._holders.get(node, (number, now_s))
        if holder != number and abs(now_s - heard_s) < NAME_HELD_S:
            raise SourceError(
                f"{self._endpoints[number].url}: says that it is {node}, but "
                f"{self._endpoints[holder].url} has that name; its data is refused"
            )
        self._holders[node] = number, now_s

    def _failed(self, number: int, error: Exception) -> list[Trace]:
        self._sessions[number].disconnected()
        is_ours = isinstance(error, SourceError)
        self._errors[number] = str(error) if is_ours else f"{self._endpoints[number].url}: {describe(error)}"
        return []

    @property
    def faults(self) -> Faults:
        return sum((stream.faults for stream in self._streams), NONE)

    @property
    def problems(self) -> tuple[str, ...]:
        return first_problems([self._errors[number] for number in sorted(self._errors)], "exporters do not answer")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._sweep.close()


def _parse(session: ExporterSession, answer: bytes) -> Parsed:
    begun_s = time.thread_time()
    readings: list[NodeReading] | Exception | None
    try:
        readings = session.receive(answer)
    except Exception as error:
        readings = error
    return readings, max(REST * (time.thread_time() - begun_s), len(answer) / REST_BYTES_PER_S)


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
