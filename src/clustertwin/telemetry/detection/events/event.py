"""An event: threads that were unusual for some time, and how two events of one cause are merged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.scores import NAMING_VIEW
from clustertwin.telemetry.moments.moment import Moment

Places = tuple[tuple[str, tuple[int, ...]], ...]  # ((node, cpus), …), ordered


@dataclass(frozen=True, slots=True)
class Event:
    """One problem. It is open while `end_s` is None."""

    id: str
    places: Places
    jobs: tuple[str, ...]  # empty: threads without a job
    owner: str
    onset_s: int  # the end of the first window that alarmed
    seen_s: int  # the end of the last window that alarmed
    end_s: int | None
    score: float  # the highest so far
    view: str  # the view of the detector that reported it
    model: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for node, _ in self.places)

    @property
    def threads(self) -> int:
        return sum(len(cpus) for _, cpus in self.places)

    @property
    def job(self) -> str:
        """The job, if there is exactly one."""
        return self.jobs[0] if len(self.jobs) == 1 else ""

    @property
    def open(self) -> bool:
        return self.end_s is None


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to an event."""

    kind: Literal["opened", "extended", "closed"]
    event: Event


def event_id(name: str, is_job: bool, onset_s: int) -> str:
    """The id of the event of a job or a node. It depends on nothing else, so a restart cannot create a second event."""
    return hashlib.sha256(f"{'job' if is_job else 'node'}\0{name}\0{onset_s}".encode()).hexdigest()[:12]


def places_of(moment: Moment, rows: NDArray[np.intp]) -> Places:
    """The nodes and cpus of these threads."""
    places: dict[str, list[int]] = {}
    for row in rows:
        places.setdefault(moment.nodes[moment.node[row]], []).append(int(moment.cpu[row]))
    return tuple((node, tuple(sorted(cpus))) for node, cpus in sorted(places.items()))


def merge(old: Event, new: Event) -> Event:
    """The old event with the threads, jobs and score of the new one added."""
    places = {node: set(cpus) for node, cpus in old.places}
    for node, cpus in new.places:
        places.setdefault(node, set()).update(cpus)
    owners = {owner for owner in (old.owner, new.owner) if owner}
    return replace(
        old,
        places=tuple((node, tuple(sorted(cpus))) for node, cpus in sorted(places.items())),
        jobs=tuple(sorted({*old.jobs, *new.jobs})),
        owner=owners.pop() if len(owners) == 1 else "",
        onset_s=min(old.onset_s, new.onset_s),
        seen_s=max(old.seen_s, new.seen_s),
        score=max(old.score, new.score),
        view=_merged_view(old, new),
    )


def _merged_view(old: Event, new: Event) -> str:
    """The naming view if one of the two has it, else the view of the higher score."""
    if NAMING_VIEW in (old.view, new.view):
        return NAMING_VIEW
    return new.view if new.score > old.score else old.view
