"""From scores to events: moment after moment with its scores -> events that open, grow and close.

A thread alarms where its score is above the bar: what happens to one window in a thousand is no event yet, and what
chance alone would do on some thread of a large node every other day is none either. What alarms for `needed_s` of the
last `of_s` seconds is one, and the further above the bar, the more a second counts. Threads of one job are one event,
and so are jobs of one node that went wrong together, for the same reason. An unknown score is neither an alarm nor
calm. Nothing here reads a clock or writes a file.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.scores import NAMING, Scores
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment

_DAY_S = 86_400

Places = tuple[tuple[str, tuple[int, ...]], ...]  # ((node, cpus), …), ordered


@dataclass(frozen=True, slots=True)
class EventSettings:
    margin: float = 1.5  # the bar, in thresholds …
    chance_per_node_day: float = 1.0  # … and at least where chance gives a node no more windows above it; few last
    strongest: float = 6.0  # a second so many times above the bar, or more, counts for so many
    needed_s: int = 60  # of alarm …
    of_s: int = 90  # … within so many seconds make an event
    calm_ratio: float = 0.8  # an open event is calm while its scores are below this part of the bar …
    calm_s: int = 120  # … and is closed when it was calm for so long
    forget_s: int = 600  # an event nothing is known of for so long is closed
    same_cause_s: int = 120  # jobs of one node that go wrong within so long, seen by the same view, are one event
    longest_step_s: int = 30  # a score speaks for no more than these seconds before it


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that went wrong. Open while `end_s` is None."""

    id: str
    places: Places
    jobs: tuple[str, ...]  # empty: threads without a job
    owner: str
    onset_s: int  # the end of the first window that alarmed
    seen_s: int  # … and of the last
    end_s: int | None
    score: float  # the highest so far
    view: str  # which view of the detector spoke
    model: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for node, _ in self.places)

    @property
    def threads(self) -> int:
        return sum(len(cpus) for _, cpus in self.places)

    @property
    def job(self) -> str:
        """The job, where it is one."""
        return self.jobs[0] if len(self.jobs) == 1 else ""

    @property
    def open(self) -> bool:
        return self.end_s is None


@dataclass(frozen=True, slots=True)
class Change:
    kind: Literal["opened", "extended", "closed"]
    event: Event


@dataclass(slots=True, eq=False)
class _Open:
    """An open event and how it has been of late."""

    event: Event
    calm_s: int = 0
    unknown_s: int = 0
    written: Event | None = None  # as it was last told of


class _Index:
    """Open events by job and by node, so that ten thousand of them cost no more than one to look through."""

    def __init__(self, events: Iterable[_Open]) -> None:
        self._by_job: dict[str, _Open] = {}
        self._by_node: dict[str, list[_Open]] = {}
        for one in events:
            self.add(one)

    def add(self, one: _Open) -> None:
        self._by_job.update(dict.fromkeys(one.event.jobs, one))
        for node in one.event.nodes:
            here = self._by_node.setdefault(node, [])
            if one not in here:
                here.append(one)

    def find(self, fresh: Event, same_cause_s: int) -> _Open | None:
        """The event of the same job or of the same free threads, else of the same node, view and time."""
        for job in fresh.jobs:
            if job in self._by_job:
                return self._by_job[job]
        near = [one for node in fresh.nodes for one in self._by_node.get(node, ())]
        free = [one for one in near if not fresh.jobs and not one.event.jobs]
        together = [
            one
            for one in near
            if one.event.view == fresh.view and abs(fresh.onset_s - one.event.onset_s) <= same_cause_s
        ]
        return next(iter(free + together), None)


class Tracker:
    """Remembers the last scores of every thread, and the events that are open."""

    def __init__(self, settings: EventSettings = EventSettings(), already_open: Iterable[Event] = ()) -> None:
        """`already_open` are the events of a loop that ended before; they go on, or close."""
        self.settings = settings
        self._open = {event.id: _Open(event, written=event) for event in already_open}
        self._threads: list[tuple[str, int]] = []  # what the columns of `_alarms` are
        self._row_of: dict[tuple[str, int], int] = {}
        self._layout: tuple[tuple[str, ...], bytes, bytes] | None = None
        self._times: deque[tuple[int, int]] = deque()  # (end_s, the seconds it speaks for)
        self._alarms: deque[NDArray[np.float32]] = deque()  # (thread,) each: how far above the bar, 0 below

    @property
    def open(self) -> tuple[Event, ...]:
        """Newest first."""
        return tuple(sorted((one.event for one in self._open.values()), key=lambda e: (-e.onset_s, e.id)))

    def update(
        self,
        moment: Moment,
        scores: Scores,
        threshold: float,
        *,
        model: str = "",
        owners: Mapping[str, str] | None = None,
    ) -> list[Change]:
        """What changed by this moment. Moments come in time order; one that is not newer changes nothing.

        Where time goes back further than the memory reaches, the clock was set: the memory is void, the events stand.
        """
        if self._times and moment.end_s <= self._times[-1][0]:
            if moment.end_s > self._times[-1][0] - self.settings.of_s:
                return []
            self._times.clear()
            self._alarms.clear()
        bar = max(threshold * self.settings.margin, by_chance(moment, self.settings.chance_per_node_day))
        step_s = self._remember(moment, scores, bar)
        held_s, first_s = self._held(moment)
        changes = self._join(moment, scores, held_s, first_s, model, owners or {})
        changes += self._review(moment, scores, bar, step_s)
        return changes

    def _remember(self, moment: Moment, scores: Scores, bar: float) -> int:
        self._align(moment)
        step_s = moment.end_s - self._times[-1][0] if self._times else 0
        self._times.append((moment.end_s, min(step_s, self.settings.longest_step_s)))
        strength = np.minimum(scores.score / np.float32(bar), np.float32(self.settings.strongest))
        self._alarms.append(np.where(scores.score > bar, strength, np.float32(0)))  # 0 for NaN
        while self._times[0][0] <= moment.end_s - self.settings.of_s:
            self._times.popleft()
            self._alarms.popleft()
        return step_s

    def _align(self, moment: Moment) -> None:
        """Threads may come and go: move the columns of what is remembered to where they are now."""
        layout = moment.nodes, moment.node.tobytes(), moment.cpu.tobytes()
        if layout == self._layout:
            return
        threads = [(moment.nodes[n], int(c)) for n, c in zip(moment.node, moment.cpu, strict=True)]
        column = {thread: i for i, thread in enumerate(self._threads)}
        came_from = np.array([column.get(thread, -1) for thread in threads], np.intp)
        self._alarms = deque(
            np.where(came_from >= 0, alarms[came_from], np.float32(0))
            if len(alarms)
            else np.zeros(len(threads), np.float32)
            for alarms in self._alarms
        )
        self._threads, self._layout = threads, layout
        self._row_of = {thread: row for row, thread in enumerate(threads)}

    def _held(self, moment: Moment) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(thread,) seconds of alarm of late, and the first of them; what its last job did does not count."""
        times_s = np.array([time_s for time_s, _ in self._times], np.int64)[:, None]
        steps_s = np.array([step_s for _, step_s in self._times], np.float64)
        strength = np.stack(self._alarms) * (times_s > moment.end_s - moment.age_s)  # (scoring, thread)
        alarms = strength > 0
        first_s = np.where(alarms.any(0), times_s[alarms.argmax(0), 0], moment.end_s)
        # One scoring is no persistence, however strange.
        return np.where(alarms.sum(0) >= 2, steps_s @ strength, 0.0), first_s

    def _join(
        self,
        moment: Moment,
        scores: Scores,
        held_s: NDArray[np.float64],
        first_s: NDArray[np.int64],
        model: str,
        owners: Mapping[str, str],
    ) -> list[Change]:
        """Open events for groups that alarmed long enough, or let them into the event they belong to."""
        group = np.where(moment.job >= 0, moment.job, -1 - moment.node)  # a job, or the free threads of a node
        # Once one thread of a group is sure, those that alarm half as long are taken with it.
        likely = np.flatnonzero((self._alarms[-1] > 0) & (2 * held_s >= self.settings.needed_s))
        likely = likely[np.argsort(group[likely], kind="stable")]
        index = _Index(self._open.values()) if len(likely) else None
        changes = []
        for rows in np.split(likely, np.flatnonzero(np.diff(group[likely])) + 1):
            if index is None or held_s[rows].max() < self.settings.needed_s:
                continue
            number = int(group[rows[0]])
            jobs = (moment.jobs[number],) if number >= 0 else ()
            worst = rows[np.argmax(np.nan_to_num(scores.score[rows], nan=-1.0))]
            fresh = Event(
                id="",
                places=_places(moment, rows),
                jobs=jobs,
                owner=owners.get(jobs[0], "") if jobs else "",
                onset_s=int(first_s[rows].min()),
                seen_s=moment.end_s,
                end_s=None,
                score=float(np.nan_to_num(scores.score[worst])),
                view=scores.spoke(int(worst)),
                model=model,
            )
            known = index.find(fresh, self.settings.same_cause_s)
            if known is not None:
                known.event = _merged(known.event, fresh)
                index.add(known)
                continue
            name = jobs[0] if jobs else fresh.places[0][0]
            fresh = replace(fresh, id=_id(name, bool(jobs), fresh.onset_s))
            self._open[fresh.id] = _Open(fresh, written=fresh)
            index.add(self._open[fresh.id])
            changes.append(Change("opened", fresh))
        return changes

    def _review(self, moment: Moment, scores: Scores, bar: float, step_s: int) -> list[Change]:
        """Go on with open events, or close those that are calm, over, or lost from sight."""
        if not self._open:
            return []
        changes = []
        row_of = self._row_of
        running = set(moment.jobs)
        for one in list(self._open.values()):
            event = one.event
            rows = [row_of[n, c] for n, cpus in event.places for c in cpus if (n, c) in row_of]
            mine = scores.score[rows]
            known = mine[~np.isnan(mine)]
            over = bool(event.jobs) and bool(rows) and not running & set(event.jobs)
            if len(known) and known.max() > bar * self.settings.calm_ratio:
                one.calm_s = one.unknown_s = 0
                if known.max() > bar:
                    event = replace(event, seen_s=moment.end_s, score=max(event.score, float(known.max())))
            elif len(known):
                one.calm_s, one.unknown_s = one.calm_s + min(step_s, self.settings.longest_step_s), 0
            else:
                one.unknown_s += step_s
            if over or one.calm_s >= self.settings.calm_s or one.unknown_s >= self.settings.forget_s:
                event = replace(event, end_s=event.seen_s)
                del self._open[event.id]
                changes.append(Change("closed", event))
                continue
            one.event = event
            if _worth_telling(one.written, event):
                one.written = event
                changes.append(Change("extended", event))
        return changes


def by_chance(moment: Moment, per_node_day: float) -> float:
    """The score that so many windows of a node's normal threads exceed in a day, on the largest node.

    A score is -log10 of how often a normal window is this strange, and a thread has 864 windows a day.
    """
    windows = np.bincount(moment.node, minlength=1).max() * _DAY_S / WINDOW_S
    return float(np.log10(windows) - np.log10(per_node_day))


def _id(name: str, is_job: bool, onset_s: int) -> str:
    """The same cause at the same time has the same name, so that no crash can make two of one."""
    return hashlib.sha256(f"{'job' if is_job else 'node'}\0{name}\0{onset_s}".encode()).hexdigest()[:12]


def _places(moment: Moment, rows: NDArray[np.intp]) -> Places:
    places: dict[str, list[int]] = {}
    for row in rows:
        places.setdefault(moment.nodes[moment.node[row]], []).append(int(moment.cpu[row]))
    return tuple((node, tuple(sorted(cpus))) for node, cpus in sorted(places.items()))


def _merged(old: Event, new: Event) -> Event:
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
        view=_told_by(old, new),
    )


def _told_by(old: Event, new: Event) -> str:
    """The view of the higher score; once what is wrong has a name, that stays."""
    if NAMING in (old.view, new.view):
        return NAMING
    return new.view if new.score > old.score else old.view


def _worth_telling(before: Event | None, now: Event) -> bool:
    """More threads or jobs, another view, a clearly higher score, or a minute since the last word."""
    return (
        before is None
        or before.places != now.places
        or before.jobs != now.jobs
        or before.view != now.view
        or now.score >= before.score + 1
        or now.seen_s >= before.seen_s + 60
    )
