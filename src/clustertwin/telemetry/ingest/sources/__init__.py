"""Where counters come from: this host, an exporter, Prometheus or VictoriaMetrics -> the same traces.

Two tiny ports. A `Live` source gives what is new since it was last asked, and `watch` makes traces of it, second
by second. A `History` gives a range, and `traces` makes one trace per node of it.

    for trace in watch(Host(), seconds=60): ...
    found, faults = traces(Prometheus(Endpoint("http://prometheus:9090")), start_s, end_s)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import ceil, floor
from typing import Protocol

import numpy as np

from clustertwin.core.errors import NoSamples, SourceError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.ingest.counters import Counters, Reading
from clustertwin.telemetry.ingest.rates import Faults, RateStream, to_trace
from clustertwin.telemetry.ingest.second_boundaries import GAP


class Live(Protocol):
    """Gives the readings it has not given before, oldest first; SourceError where it cannot."""

    def readings(self) -> list[Reading]: ...


class History(Protocol):
    """Gives the counters of each node whose samples lie from `start_s` to `end_s`."""

    def counters(self, start_s: float, end_s: float) -> list[Counters]: ...


def traces(
    source: History, start_s: float, end_s: float, *, interval_s: int = 1, node_channels: bool = False
) -> tuple[list[Trace], Faults]:
    """One trace per node, over exactly the whole intervals inside the range; NoSamples where there is nothing."""
    # The first and the last interval need a sample beyond them, wherever in the second the sampler fires.
    margin_s = 1.5 * interval_s
    found: list[Trace] = []
    faults = Faults()
    for counters in source.counters(start_s - margin_s, end_s + margin_s):
        apart_s = float(np.median(np.diff(np.unique(counters.times_s)))) if len(counters.times_s) > 2 else 0.0
        if apart_s > GAP * interval_s:
            raise SourceError(
                f"{counters.node}: samples are {apart_s:g} s apart, not {interval_s}: "
                f"scrape more often, or ask for an interval of {ceil(apart_s)} s"
            )
        trace, wrong = to_trace(
            counters, interval_s=interval_s, start_s=ceil(start_s), end_s=floor(end_s), node_channels=node_channels
        )
        found.append(trace)
        faults += wrong
    if not found:
        raise NoSamples(f"no samples between {start_s:.0f} and {end_s:.0f}")
    return found, faults


def watch(
    source: Live,
    seconds: float,
    *,
    stream: RateStream | None = None,
    patience_s: float = 60.0,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Trace]:
    """Ask at each whole second, and give each second's trace as it is complete, until they span so many seconds.

    A source that does not answer at all is an error at once. Later an outage is waited for, up to `patience_s` or the
    end, and only then is its SourceError passed on. Pass a `stream` to choose the channels and to see its `faults`.
    """
    stream = stream or RateStream()
    ask_s = ceil(clock())
    # An exporter's newest sample may be more than a second old, so the last second may come a little late.
    last_s = ask_s + seconds + 2
    heard_s: float | None = None
    begin_s: int | None = None
    while ask_s <= last_s:
        if ask_s > clock():
            sleep(max(0.0, ask_s - clock()))
        try:
            readings = source.readings()
            heard_s = clock()
        except SourceError:
            if heard_s is None or clock() - heard_s > patience_s or ask_s + 1 > last_s:
                raise
            readings = []
        for reading in readings:
            trace = stream.push(reading)
            if trace is not None:
                begin_s = trace.start_s if begin_s is None else begin_s
                yield trace
                if trace.end_s - begin_s >= seconds:
                    return
        # After a stall the seconds that passed cannot be asked for again; the gap is the stream's to count.
        ask_s = max(ask_s + 1, floor(clock()) + (clock() % 1 > 0.5))
