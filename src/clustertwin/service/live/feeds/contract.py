"""The port of the loop to its data: a source -> the traces that have arrived.

A feed never blocks and never raises. A source that hangs or fails is named in `problems`, its seconds stay unknown, and
it is queried again. A feed has its own clock, so a replay runs at the time of the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def first_problems(problems: Sequence[str], rest: str) -> tuple[str, ...]:
    """At most `NAMED` problems; a last sentence counts the others.

    >>> first_problems([f"n{i} is silent" for i in range(12)], "nodes are silent")[9:]
    ('n9 is silent', '2 more nodes are silent')
    """
    more = len(problems) - NAMED
    return (*problems[:NAMED], f"{more} more {rest}") if more > 0 else tuple(problems)
