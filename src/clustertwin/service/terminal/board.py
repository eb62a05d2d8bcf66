"""What the terminal shows at one second, wherever it comes from; and the port of those who can give it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node at a glance."""

    node: str
    threads: int
    state: str  # watching, stale …
    score: float  # of its strangest thread; NaN is unknown
    strange: int  # threads above the threshold


@dataclass(frozen=True, slots=True)
class Heat:
    """The seconds of one node's threads, as ratios by the name of what is shown; NaN is unknown."""

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
    verdict: str  # empty: nobody has judged it
    why: str


@dataclass(frozen=True, slots=True)
class Board:
    """One picture; `heat` is of the node that was asked for, or of the first."""

    state: str
    nodes: tuple[NodeLine, ...] = ()
    heat: Heat | None = None
    jobs: tuple[JobLine, ...] = ()
    events: tuple[EventLine, ...] = field(default=())


class Feed(Protocol):
    """Gives a board a second, of the node last chosen, until it is stopped; judges events where it can."""

    watches: str  # what is watched, for the title
    vets: bool

    def boards(self) -> Iterator[Board]: ...
    def choose(self, node: str) -> None: ...
    def vet(self, event_id: str, verdict: str) -> None: ...
    def undo(self, event_id: str) -> None: ...
    def stop(self) -> None: ...
