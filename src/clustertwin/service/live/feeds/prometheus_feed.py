"""The newest seconds of a Prometheus server -> traces. After an outage, the seconds that were missed too."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from math import floor

from clustertwin.core.errors import InputError, NoSamples, SourceError, describe
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.live.feeds.contract import first_problems
from clustertwin.service.live.feeds.reading_stream import SET_BACK_S
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.ingest.sources import HistorySource, traces

#: Prometheus may not have scraped every node in the newest seconds yet.
BEHIND_S = 2
#: Most of the cost of a query is the number of its series, not of its seconds: after an answer that took some time,
#: Prometheus is asked again after this many times that time, …
REST = 4
#: … and at most after this long. So a small cluster is read once a second.
LONGEST_REST_S = 4.0
#: How far back data is requested after an outage: the length of the trace buffer.
BACKFILL_S = 300
#: A longer range is read in parts, oldest first: a minute of 100,000 threads takes 1.6 GB while it is read.
LONGEST_QUERY_S = 60


class PrometheusFeed:
    """One query at a time, in the background."""

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
        return first_problems([f"left out: {reason}" for reason in self._refused.values()], "nodes are left out")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
