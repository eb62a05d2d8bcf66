"""What `twin top` shows at one second, and the port of its sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One row of the table of nodes."""

    node: str
    threads: int
    state: str  # watching, stale …
    score: float  # the highest score of its threads; NaN is unknown
    anomalous: int  # threads above the threshold


@dataclass(frozen=True, slots=True)
class Heat:
    """The heat map of one node's threads: ratios for each channel; NaN is unknown."""

    node: str
    cpus: tuple[int, ...]
    end_s: int
    ratios: dict[str, NDArray[np.float32]]  # busy, user, system, iowait -> (cpu, second)
    node_channels: dict[str, float] = field(default_factory=dict)  # of the node now, by name; NaN is unknown


@dataclass(frozen=True, slots=True)
class JobLine:
    job: str
    owner: str
    node: str
    threads: int
    running_s: int


@dataclass(frozen=True, slots=True)
class EventLine:
    event_id: str
    node: str
    threads: int
    job: str
    score: float
    onset_s: int
    end_s: int | None
    verdict: str  # empty: no verdict
    why: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """The whole screen. `heat` belongs to the chosen node, or to the first one."""

    state: str
    nodes: tuple[NodeLine, ...] = ()
    heat: Heat | None = None
    jobs: tuple[JobLine, ...] = ()
    events: tuple[EventLine, ...] = field(default=())


class BoardSource(Protocol):
    """Gives a board each second until it is stopped. A source with `vets` accepts verdicts."""

    watches: str  # the title
    vets: bool

    def boards(self) -> Iterator[Board]: ...
    def choose(self, node: str) -> None: ...
    def vet(self, event_id: str, verdict: str) -> None: ...
    def undo(self, event_id: str) -> None: ...
    def stop(self) -> None: ...
