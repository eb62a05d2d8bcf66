"""An event: threads that were unusual for some time, and how two events of one cause are merged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.scores import NAMING_VIEW
from clustertwin.telemetry.moments.moment import Moment

Places = tuple[tuple[str, tuple[int, ...]], ...]  # ((node, cpus), …); the node where the event began is first


@dataclass(frozen=True, slots=True)
class Event:
    """One problem. It is open while `end_s` is None.

    Its id, its first job, its first node and its cause never change: they identify it in alerts and messages.
    """

    id: str
    places: Places
    jobs: tuple[str, ...]  # the job where it began is first; empty: threads without a job
    owner: str
    onset_s: int  # the end of the first window that alarmed
    seen_s: int  # the end of the last window that alarmed
    end_s: int | None
    score: float  # the highest so far
    view: str  # the view of the detector that reported it; the question, if a finding opened it
    model: str
    cause: str = ""  # a row of `CAUSES`; empty: stored by a release without causes
    question: str = ""  # that the event answers: harm or change
    title: str = ""  # in an operator's words
    since_s: int = 0  # since when its threads behave like this, as far as known; 0: since `onset_s`

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for node, _ in self.places)

    @property
    def threads(self) -> int:
        return sum(len(cpus) for _, cpus in self.places)

    @property
    def job(self) -> str:
        """The job where the event began; empty if it began on threads without a job."""
        return self.jobs[0] if self.jobs else ""

    @property
    def node(self) -> str:
        """The node where the event began."""
        return self.places[0][0] if self.places else ""

    @property
    def by_finding(self) -> bool:
        """Whether a finding opened it, and gave it its cause."""
        return bool(self.question) and self.view == self.question

    @property
    def lasted_s(self) -> int:
        """How long its threads have behaved like this."""
        return self.seen_s - min(self.since_s or self.onset_s, self.onset_s)

    @property
    def open(self) -> bool:
        return self.end_s is None


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to an event."""

    kind: Literal["opened", "extended", "closed"]
    event: Event


def event_id(name: str, is_job: bool, onset_s: int, cause: str = "") -> str:
    """The id of the event of a job or a node. It depends on nothing else, so a restart cannot create a second event."""
    identity = f"{'job' if is_job else 'node'}\0{name}\0{onset_s}\0{cause}"
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


def places_of(moment: Moment, rows: NDArray[np.intp]) -> Places:
    """The nodes and cpus of these threads."""
    places: dict[str, list[int]] = {}
    for row in rows:
        places.setdefault(moment.nodes[moment.node[row]], []).append(int(moment.cpu[row]))
    return tuple((node, tuple(sorted(cpus))) for node, cpus in sorted(places.items()))


def merge(old: Event, new: Event) -> Event:
    """The old event with the threads, jobs and score of the new one added. What identifies it stays as it is."""
    owners = {owner for owner in (old.owner, new.owner) if owner}
    return replace(
        old,
        places=join_places(old.places, new.places),
        jobs=(*old.jobs, *sorted(set(new.jobs) - set(old.jobs))),
        owner=owners.pop() if len(owners) == 1 else "",
        onset_s=min(old.onset_s, new.onset_s),
        seen_s=max(old.seen_s, new.seen_s),
        score=max(old.score, new.score),
        view=_merged_view(old, new),
        since_s=min(old.since_s or old.onset_s, new.since_s or new.onset_s),
    )


def join_places(old: Places, new: Places) -> Places:
    """The threads of both. New nodes come after the old ones."""
    places = {node: set(cpus) for node, cpus in old}
    for node, cpus in sorted(new):
        places.setdefault(node, set()).update(cpus)
    return tuple((node, tuple(sorted(cpus))) for node, cpus in places.items())


def without_places(event: Event, gone: set[tuple[str, int]]) -> Event:
    """The event without these threads; the event itself if it would have none left."""
    if not gone:
        return event
    kept = ((node, tuple(cpu for cpu in cpus if (node, cpu) not in gone)) for node, cpus in event.places)
    places = tuple((node, cpus) for node, cpus in kept if cpus)
    return replace(event, places=places) if places else event


def _merged_view(old: Event, new: Event) -> str:
    """The naming view if one of the two has it, else the view of the higher score."""
    if NAMING_VIEW in (old.view, new.view):
        return NAMING_VIEW
    return new.view if new.score > old.score else old.view
