"""A few sources that are read directly, such as this host -> traces."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from clustertwin.core.errors import SourceError, describe
from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.reading_stream import Stream
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.rates import NONE, Faults
from clustertwin.telemetry.ingest.sources import LiveSource

#: How long the loop waits for live sources. A later answer is used in the next second.
ANSWER_S = 0.4
#: Sources that are read at the same time.
MOST_THREADS = 16


class LiveFeed:
    """Each source is queried in its own thread. For many nodes, see `ExporterFeed`."""

    pace, patient = 1.0, False

    def __init__(
        self, source: str, lives: Sequence[tuple[str, LiveSource]], clock: Callable[[], float] = time.time
    ) -> None:
        self.source = source
        self._clock = clock
        self._lives = dict(lives)
        self._streams = {name: Stream() for name in self._lives}
        self._asked: dict[str, Future[list[NodeReading]]] = {}
        self._errors: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(min(MOST_THREADS, len(lives)), "feed")

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
