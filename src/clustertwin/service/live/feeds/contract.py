"""The port of the loop to its data: a source -> the traces that have arrived.

A feed never blocks and never raises. A source that hangs or fails is named in `problems`, its seconds stay unknown, and
it is queried again. A feed has its own clock, so a replay runs at the time of the recording.
"""

from __future__ import annotations

from typing import Protocol

from clustertwin.core.traces import Trace
from clustertwin.telemetry.ingest.rates import Faults

#: `problems` names this many nodes that are left out, and counts the rest.
NAMED = 10


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
