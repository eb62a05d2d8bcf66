"""The sources of the loop: this host, exporters, Prometheus or a replayed recording -> traces.

A feed never blocks and never raises. A source that hangs or fails is named in `problems`, its seconds stay unknown, and
it is queried again. A feed has its own clock, so a replay runs at the time of the recording.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from math import floor
from typing import Protocol

from clustertwin.core.errors import InputError, NoSamples, SourceError, describe
from clustertwin.core.traces import JobSpan, Trace, gather_node_channels
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.rates import NONE, Faults, RateStream
from clustertwin.telemetry.ingest.sources import HistorySource, LiveSource, traces
from clustertwin.telemetry.moments.moment import IDLE
from clustertwin.telemetry.recording import Recording

#: A larger step back means that a clock was set back; a smaller one means samples out of order.
SET_BACK_S = 30.0
#: How long the loop waits for live sources. A later answer is used in the next second.
ANSWER_S = 0.4
#: Prometheus may not have scraped every node in the newest seconds yet.
BEHIND_S = 2
#: `problems` names this many nodes of Prometheus that are left out, and counts the rest.
NAMED = 10
#: Most of the cost of a query is the number of its series, not of its seconds: after an answer that took some time,
#: Prometheus is asked again after this many times that time, …
REST = 4
#: … and at most after this long. So a small cluster is read once a second.
LONGEST_REST_S = 4.0
#: How far back data is requested after an outage: the length of the trace buffer.
BACKFILL_S = 300
#: A longer range is read in parts, oldest first: a minute of 100,000 threads takes 1.6 GB while it is read.
LONGEST_QUERY_S = 60


class Feed(Protocol):
    source: str  # a description for people
    pace: float  # seconds of the feed's clock in one second of real time
    patient: bool  # whether its data can wait until the detector is loaded

    def now_s(self) -> float:
        """The time of the feed's clock."""
        ...

    def take(self) -> list[Trace]:
        """The traces that have arrived since the last call."""
        ...

    @property
    def faults(self) -> Faults: ...

    @property
    def problems(self) -> tuple[str, ...]: ...

    def close(self) -> None: ...


class LiveFeed:
    """A few live sources, each queried in its own thread. For many nodes, see `ExporterFeed`."""

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
        self._errors: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(min(threads, len(lives)), "feed")

    def now_s(self) -> float:
        return self._clock()

    def take(self) -> list[Trace]:
        for name, live in self._lives.items():
            if name not in self._asked:
                self._asked[name] = self._pool.submit(live.readings)
        wait(self._asked.values(), timeout=ANSWER_S)
        traces: list[Trace] = []
        for name in [name for name, asked in self._asked.items() if asked.done()]:
            try:
                traces += self._streams[name].push(self._asked.pop(name).result())
                self._errors.pop(name, None)
            except Exception as error:  # a faulty source must not stop the others
                self._errors[name] = str(error) if isinstance(error, SourceError) else f"{name}: {describe(error)}"
        for name in self._asked:
            self._errors[name] = f"{name}: has not answered yet"
        return traces

    @property
    def faults(self) -> Faults:
        return sum((stream.faults for stream in self._streams.values()), NONE)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._errors.values())

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class Stream:
    """The readings of one source -> traces. Starts again if its clock was set back, or if it is another node now."""

    def __init__(self) -> None:
        self._rates = RateStream()
        self._before = NONE
        self._last_s, self._node = float("-inf"), ""

    def push(self, readings: list[NodeReading]) -> list[Trace]:
        traces = []
        for reading in readings:
            if reading.time_s < self._last_s - SET_BACK_S or reading.node != self._node:
                self._before, self._rates = self.faults, RateStream()
            self._last_s, self._node = reading.time_s, reading.node
            trace = self._rates.push(reading)
            if trace is not None:
                traces.append(trace)
        return traces

    @property
    def faults(self) -> Faults:
        return self._before + self._rates.faults


class PrometheusFeed:
    """The newest seconds of a Prometheus server, queried in the background. After an outage, the missed ones too."""

    pace, patient = 1.0, False

    def __init__(self, source: str, history: HistorySource, clock: Callable[[], float] = time.time) -> None:
        self.source = source
        self._history, self._clock = history, clock
        self._pool = ThreadPoolExecutor(1, "feed")
        self._asked: Future[tuple[list[Trace], Faults]] | None = None
        self._refused: dict[str, str] = {}  # the nodes that the last answer could not be used for, and why
        self._until_s: int | None = None  # the end of the data returned so far
        self._asking_s = 0
        self._is_past = False  # whether newer seconds than those of the query exist
        self._rest_until_s = 0.0
        self._took_s = 0.0  # by the last query
        self._starts: dict[tuple[str, str, tuple[int, ...]], tuple[float, float]] = {}
        self._faults = Faults()
        self._error = ""

    def now_s(self) -> float:
        return self._clock()

    def take(self) -> list[Trace]:
        answer: list[Trace] = []
        if self._asked is not None and self._asked.done():
            answer = self._answer(self._asked)
            self._asked = None
            rest_s = 0.0 if self._is_past else min((REST - 1) * self._took_s, LONGEST_REST_S - self._took_s)
            self._rest_until_s = self._clock() + rest_s
        if self._asked is None and not self._rests():
            newest_s = floor(self._clock()) - BEHIND_S
            start_s = max(self._until_s or newest_s - BACKFILL_S, newest_s - BACKFILL_S)
            if self._until_s is not None and newest_s < self._until_s - SET_BACK_S:
                start_s = newest_s - 1  # the clock of this machine was set back
            end_s = min(newest_s, start_s + LONGEST_QUERY_S)
            if start_s < end_s:
                self._asking_s, self._is_past = end_s, end_s < newest_s
                self._asked = self._pool.submit(self._ask, start_s, end_s)
        elif self._asked is not None and self._clock() - self._asking_s > 10:
            self._error = f"{self.source}: has not answered for {self._clock() - self._asking_s:.0f} s"
        return answer

    def _rests(self) -> bool:
        # The first condition: the clock may have been set back.
        return self._rest_until_s - LONGEST_REST_S <= self._clock() < self._rest_until_s

    def _ask(self, start_s: float, end_s: float) -> tuple[list[Trace], Faults]:
        refused: dict[str, str] = {}
        begun_s = self._clock()
        try:
            return traces(self._history, start_s, end_s, refused=refused)
        finally:
            self._took_s = max(self._clock() - begun_s, 0.0)
            self._refused = {**getattr(self._history, "refused", {}), **refused}

    def _answer(self, asked: Future[tuple[list[Trace], Faults]]) -> list[Trace]:
        try:
            answer, faults = asked.result()
        except Exception as error:  # whatever a server answers, it is asked again
            is_ours = isinstance(error, SourceError | InputError)
            self._error = str(error) if is_ours else f"{self.source}: {describe(error)}"
            if self._is_past and isinstance(error, NoSamples):  # Prometheus is younger than that
                self._error, self._until_s = "", self._asking_s
            return []
        self._error, self._until_s = "", self._asking_s
        self._faults += faults
        return [replace(trace, spans=tuple(map(self._stitched, trace.spans))) for trace in answer]

    def _stitched(self, span: JobSpan) -> JobSpan:
        """Give a job its first known start: in each query the job seems to start at the beginning."""
        key = span.node, span.job, span.cpus
        start_s, end_s = self._starts.get(key, (span.start_s, span.end_s))
        if span.start_s > end_s + 15:  # after a longer gap it is another run of the same job
            start_s = span.start_s
        self._starts[key] = start_s, max(end_s, span.end_s)
        if len(self._starts) > 100_000:
            oldest = sorted(self._starts, key=lambda key: self._starts[key][1])[:50_000]
            for key in oldest:
                del self._starts[key]
        return replace(span, start_s=start_s)

    @property
    def faults(self) -> Faults:
        return self._faults

    @property
    def problems(self) -> tuple[str, ...]:
        if self._error:
            return (self._error,)
        reasons = list(self._refused.values())
        more = (f"{len(reasons) - NAMED} more nodes are left out",) if len(reasons) > NAMED else ()
        return (*(f"left out: {reason}" for reason in reasons[:NAMED]), *more)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class ReplayFeed:
    """A recording, replayed at `pace` times real time. At the end its clock stops.

    On a machine that is too slow for the pace, its clock waits: at most `most_step_s` seconds are taken at once. So the
    detector looks at the recording in small steps.
    """

    patient = True

    def __init__(
        self,
        recording: Recording,
        pace: float,
        clock: Callable[[], float] = time.monotonic,
        most_step_s: float = float("inf"),
    ) -> None:
        self.source = f"replay of {recording.directory.name} at {pace:g}×"
        self.pace = pace
        self._recording, self._clock = recording, clock
        self._most_step_s = most_step_s
        self._begun_s: float | None = None
        self._until_s = recording.start_s

    def now_s(self) -> float:
        if self._begun_s is None:
            self._begun_s = self._clock()
        at_s = self._recording.start_s + (self._clock() - self._begun_s) * self.pace
        if at_s > self._until_s + self._most_step_s:
            self._begun_s += (at_s - self._until_s - self._most_step_s) / self.pace
            at_s = self._until_s + self._most_step_s
        return min(at_s, self._recording.end_s)

    @property
    def ended(self) -> bool:
        return self._until_s >= self._recording.end_s

    def take(self) -> list[Trace]:
        until_s = floor(self.now_s())
        if until_s <= self._until_s:
            return []
        recorded = [
            gather_node_channels(self._recording.trace(node, self._until_s, until_s)) for node in self._recording.nodes
        ]
        self._until_s = until_s
        return [replace(trace, spans=tuple(_live_spans(trace, until_s))) for trace in recorded]

    @property
    def faults(self) -> Faults:
        return Faults()

    @property
    def problems(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


def _live_spans(trace: Trace, until_s: int) -> Iterator[JobSpan]:
    """The spans that a live source would report: jobs that have started, without the labels of a campaign."""
    for span in trace.spans:
        if span.start_s < until_s and span.job_type != IDLE:
            yield replace(span, anomaly="", onset_s=None)
