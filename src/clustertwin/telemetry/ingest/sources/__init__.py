"""Where counters come from: this host, an exporter, Prometheus or VictoriaMetrics -> the same traces.

There are two ports. A `LiveSource` returns the readings since its last call, and `watch` turns them into traces, second
by second. A `HistorySource` returns a range, and `traces` turns it into one trace for each node.

    for trace in watch(Host(), seconds=60): ...
    by_node, faults = traces(Prometheus(Endpoint("http://prometheus:9090")), start_s, end_s)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import ceil, floor
from typing import Protocol

import numpy as np

from clustertwin.core.errors import InputError, NoSamples, SourceError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.ingest.counters import Counters, NodeReading
from clustertwin.telemetry.ingest.rates import Faults, RateStream, to_trace
from clustertwin.telemetry.ingest.second_boundaries import GAP


class LiveSource(Protocol):
    def readings(self) -> list[NodeReading]:
        """The readings since the last call, oldest first; SourceError if the source does not respond."""
        ...


class HistorySource(Protocol):
    def counters(self, start_s: float, end_s: float) -> list[Counters]:
        """The counters of each node that has samples from `start_s` to `end_s`."""
        ...


def traces(
    source: HistorySource,
    start_s: float,
    end_s: float,
    *,
    interval_s: int = 1,
    wide: bool = False,
    refused: dict[str, str] | None = None,
) -> tuple[list[Trace], Faults]:
    """One trace for each node, over the whole intervals inside the range; NoSamples if there are none.

    In `wide` traces every thread carries the node's channels too. With `refused`, a node whose samples cannot be used
    is left out and named there, as long as another node can be used.
    """
    # The first and the last interval need a sample outside the range, at any phase of the sampler.
    margin_s = 1.5 * interval_s
    by_node: list[Trace] = []
    faults = Faults()
    for counters in source.counters(start_s - margin_s, end_s + margin_s):
        try:
            _check_distance(counters, interval_s)
            trace, trace_faults = to_trace(
                counters, interval_s=interval_s, start_s=ceil(start_s), end_s=floor(end_s), wide=wide
            )
        except (SourceError, InputError) as error:
            if refused is None:
                raise
            refused[counters.node] = str(error)
            continue
        by_node.append(trace)
        faults += trace_faults
    if not by_node and refused:
        raise SourceError(next(iter(refused.values())))
    if not by_node:
        raise NoSamples(f"no samples between {start_s:.0f} and {end_s:.0f}")
    return by_node, faults


def _check_distance(counters: Counters, interval_s: int) -> None:
    apart_s = float(np.median(np.diff(np.unique(counters.times_s)))) if len(counters.times_s) > 2 else 0.0
    if apart_s > GAP * interval_s:
        raise SourceError(
            f"{counters.node}: samples are {apart_s:g} s apart, not {interval_s}: "
            f"scrape more often, or use an interval of {ceil(apart_s)} s"
        )


def watch(
    source: LiveSource,
    seconds: float,
    *,
    stream: RateStream | None = None,
    patience_s: float = 60.0,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Trace]:
    """Read the source at each whole second and yield each second's trace when it is complete, for `seconds` seconds.

    If the source does not respond at all, its SourceError is raised at once. After the first response an outage is
    tolerated for up to `patience_s`, or until the end. Pass a `stream` to choose the interval and to read its `faults`.
    The time that a new installation takes to compile its loops, before the first trace, is not part of `seconds`.
    """
    stream = stream or RateStream()
    next_s = ceil(clock())
    # The newest sample of an exporter may be more than a second old, so the last second may be a little late.
    last_s = next_s + seconds + 2
    response_s: float | None = None
    begin_s: int | None = None
    while next_s <= last_s:
        if next_s > clock():
            sleep(max(0.0, next_s - clock()))
        try:
            readings = source.readings()
            response_s = clock()
        except SourceError:
            if response_s is None or clock() - response_s > patience_s or next_s + 1 > last_s:
                raise
            readings = []
        for reading in readings:
            before_s = clock()
            trace = stream.push(reading)
            if begin_s is None and clock() - before_s > 1:
                continue  # the loops were compiled: the seconds after this trace were missed, so begin with a later one
            if trace is not None:
                begin_s = trace.start_s if begin_s is None else begin_s
                yield trace
                if trace.end_s - begin_s >= seconds:
                    return
        # Seconds that passed during a stall cannot be read again; the stream counts them as a gap.
        following_s = max(next_s + 1, floor(clock()) + (clock() % 1 > 0.5))
        if begin_s is None and following_s > next_s + 1:
            last_s = following_s + seconds + 2
        next_s = following_s
