"""Where the loop's seconds come from: this host, exporters, Prometheus, or a recording played again -> traces.

A feed never blocks and never raises: a source that hangs or refuses is a line in `problems`, its seconds stay unknown,
and it is asked again. Feeds keep the time, so that a replay runs on the recording's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from math import floor
from typing import Protocol

from clustertwin.core.errors import InputError, SourceError
from clustertwin.core.traces import JobSpan, Trace, gather_node_channels
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.rates import NONE, Faults, RateStream
from clustertwin.telemetry.ingest.sources import HistorySource, LiveSource, traces
from clustertwin.telemetry.moments.moment import IDLE
from clustertwin.telemetry.recording import Recording

#: A clock that goes back further than this was set; less is samples out of order.
SET_BACK_S = 30.0
#: So long the loop waits for live sources; what comes later is taken the next second.
ANSWER_S = 0.4
#: Prometheus' newest seconds may not all be scraped yet.
BEHIND_S = 2
#: How far back an outage is asked for: all that the ring can hold.
BACKFILL_S = 300


class Feed(Protocol):
    source: str  # in a person's words
    pace: float  # seconds of the feed's clock in one of ours
    patient: bool  # its seconds can wait until there is a detector

    def now_s(self) -> float:
        """The time on the feed's clock."""
        ...

    def take(self) -> list[Trace]:
        """What has come since the last call."""
        ...

    @property
    def faults(self) -> Faults: ...

    @property
    def problems(self) -> tuple[str, ...]: ...

    def close(self) -> None: ...


class LiveFeed:
    """A few live sources, each asked in a thread of its own, never twice at a time. For many: `ExporterFeed`."""

    pace, patient = 1.0, False

    def __init__(
        self,
        source: str,
        lives: Sequence[tuple[str, LiveSource]],
        clock: Callable[[], float] = time.time,
        threads: int = 16,
    ) -> None:
        self.source = source
        self._clock = clock
        self._lives = dict(lives)
        self._streams = {name: Stream() for name in self._lives}
        self._asked: dict[str, Future[list[NodeReading]]] = {}
        self._wrong: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(min(threads, len(lives)), "feed")

    def now_s(self) -> float:
        return self._clock()

    def take(self) -> list[Trace]:
        for name, live in self._lives.items():
            if name not in self._asked:
                self._asked[name] = self._pool.submit(live.readings)
        wait(self._asked.values(), timeout=ANSWER_S)
        found: list[Trace] = []
        for name in [name for name, asked in self._asked.items() if asked.done()]:
            try:
                found += self._streams[name].push(self._asked.pop(name).result())
                self._wrong.pop(name, None)
            except SourceError as error:
                self._wrong[name] = str(error)
        for name in self._asked:
            self._wrong[name] = f"{name}: has not answered yet"
        return found

    @property
    def faults(self) -> Faults:
        return sum((stream.faults for stream in self._streams.values()), NONE)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._wrong.values())

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class Stream:
    """One source's readings -> traces; begins anew where its clock was set back."""

    def __init__(self) -> None:
        self._rates = RateStream()
        self._before = NONE
        self._last_s = float("-inf")

    def push(self, readings: list[NodeReading]) -> list[Trace]:
        found = []
        for reading in readings:
            if reading.time_s < self._last_s - SET_BACK_S:
                self._before, self._rates = self.faults, RateStream()
            self._last_s = reading.time_s
            trace = self._rates.push(reading)
            if trace is not None:
                found.append(trace)
        return found

    @property
    def faults(self) -> Faults:
        return self._before + self._rates.faults


class PrometheusFeed:
    """A server's newest seconds, asked for in the background; after an outage what was missed is asked for too."""

    pace, patient = 1.0, False

    def __init__(self, source: str, history: HistorySource, clock: Callable[[], float] = time.time) -> None:
        self.source = source
        self._history, self._clock = history, clock
        self._pool = ThreadPoolExecutor(1, "feed")
        self._asked: Future[tuple[list[Trace], Faults]] | None = None
        self._until_s: int | None = None  # all before it was given
        self._asking_s = 0
        self._starts: dict[tuple[str, str, tuple[int, ...]], tuple[float, float]] = {}
        self._faults = Faults()
        self._wrong = ""

    def now_s(self) -> float:
        return self._clock()

    def take(self) -> list[Trace]:
        found: list[Trace] = []
        if self._asked is not None and self._asked.done():
            found = self._answer(self._asked)
            self._asked = None
        if self._asked is None:
            end_s = floor(self._clock()) - BEHIND_S
            start_s = max(self._until_s or end_s - BACKFILL_S, end_s - BACKFILL_S)
            if self._until_s is not None and end_s < self._until_s - SET_BACK_S:
                start_s = end_s - 1  # our clock was set back
            if start_s < end_s:
                self._asking_s = end_s
                self._asked = self._pool.submit(traces, self._history, start_s, end_s)
        elif self._clock() - self._asking_s > 10:
            self._wrong = f"{self.source}: has not answered for {self._clock() - self._asking_s:.0f} s"
        return found

    def _answer(self, asked: Future[tuple[list[Trace], Faults]]) -> list[Trace]:
        try:
            found, faults = asked.result()
        except (SourceError, InputError) as error:
            self._wrong = str(error)
            return []
        self._wrong, self._until_s = "", self._asking_s
        self._faults += faults
        return [replace(trace, spans=tuple(map(self._stitched, trace.spans))) for trace in found]

    def _stitched(self, span: JobSpan) -> JobSpan:
        """Each question sees a job begin anew: give it the start that was seen first."""
        key = span.node, span.job, span.cpus
        start_s, end_s = self._starts.get(key, (span.start_s, span.end_s))
        if span.start_s > end_s + 15:  # away for longer, it is another run of the same job
            start_s = span.start_s
        self._starts[key] = start_s, max(end_s, span.end_s)
        if len(self._starts) > 100_000:
            oldest = sorted(self._starts, key=lambda key: self._starts[key][1])[:50_000]
            for gone in oldest:
                del self._starts[gone]
        return replace(span, start_s=start_s)

    @property
    def faults(self) -> Faults:
        return self._faults

    @property
    def problems(self) -> tuple[str, ...]:
        return (self._wrong,) if self._wrong else ()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class ReplayFeed:
    """A recording as if it happened now, `pace` times as fast; when it ends, its clock stands still."""

    patient = True

    def __init__(self, recording: Recording, pace: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.source = f"replay of {recording.directory.name} at {pace:g}×"
        self.pace = pace
        self._recording, self._clock = recording, clock
        self._begun_s: float | None = None
        self._given_s = recording.start_s

    def now_s(self) -> float:
        if self._begun_s is None:
            self._begun_s = self._clock()
        return min(self._recording.start_s + (self._clock() - self._begun_s) * self.pace, self._recording.end_s)

    @property
    def ended(self) -> bool:
        return self._given_s >= self._recording.end_s

    def take(self) -> list[Trace]:
        until_s = floor(self.now_s())
        if until_s <= self._given_s:
            return []
        found = [
            gather_node_channels(self._recording.trace(node, self._given_s, until_s)) for node in self._recording.nodes
        ]
        self._given_s = until_s
        return [replace(trace, spans=tuple(_jobs(trace, until_s))) for trace in found]

    @property
    def faults(self) -> Faults:
        return Faults()

    @property
    def problems(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


def _jobs(trace: Trace, until_s: int) -> Iterator[JobSpan]:
    """A recording's spans as a live source would tell them: jobs that have begun, and not what is wrong with them.

    A campaign labels its pauses and anomalies for those who measure.
    """
    for span in trace.spans:
        if span.start_s < until_s and span.job_type != IDLE:
            yield replace(span, anomaly="", onset_s=None)
