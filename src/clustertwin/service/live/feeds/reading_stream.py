"""The readings of one source, as they arrive -> traces."""

from __future__ import annotations

from clustertwin.core.traces import Trace
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.rates import NONE, Faults, RateStream

#: A larger step back means that a clock was set back; a smaller one means samples out of order.
SET_BACK_S = 30.0


class Stream:
    """Starts again if its clock was set back, or if it is another node now."""

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
