"""From findings to events: moments in time order, each with scores and findings -> events that open, grow and close.

A finding that answers "is it harmed?" or "is it unlike itself?" opens an event once it has held for as long as its
cause needs. A job has at most one event about its progress and one about its memory; the finding that holds longest
names it. Where that is a mean of the whole job, such as its time in the kernel, a finding that says why names it: one
thread that stopped explains the others, which poll. A score alone says that work is new, and opens no event.

With `opened_by = "scores"`, or where no findings are given, scores open events, as before release 0.2. A thread alarms
while its score is above a bar. The bar is higher than the detector's threshold, because one window in a
thousand is not an event, and it grows with the size of a node, because more threads exceed a score by chance. An event
opens when a thread alarmed for `needed_s` of the last `of_s` seconds; a second far above the bar counts for several.
The alarming threads of one job with one cause form one event. Jobs of one node share an event if they have the same
cause at the same time and a channel of the node shows that the whole node has it. An event on threads without a job
ends when jobs hold them. A cause that lasts is a new event. An unknown score is neither alarm nor calm.

This module reads no clock and writes no file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S
from clustertwin.telemetry.detection.events.causes import UNUSUAL, cause_of
from clustertwin.telemetry.detection.events.diagnosis import FRESH_S, Diagnosis, diagnose
from clustertwin.telemetry.detection.events.event import (
    Change,
    Event,
    Places,
    event_id,
    join_places,
    merge,
    places_of,
    without_places,
)
from clustertwin.telemetry.detection.events.event_title import subject_of, write_title
from clustertwin.telemetry.detection.events.open_events import OpenEvent, OpenEventIndex
from clustertwin.telemetry.detection.questions.finding import MEMORY_CAUSES, Finding, names_better, naming_finding
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment

#: A channel of a node above this shows that the whole node has the problem.
NODE_WIDE = 0.3
#: An event of an earlier run may be calm for this much longer, because its findings need time to hold again.
RESUME_S = 180


@dataclass(frozen=True, slots=True)
class EventSettings:
    opened_by: Literal["findings", "scores"] = "findings"  # what opens events; the next three are for scores only
    margin: float = 1.5  # the bar is this many thresholds, …
    chance_per_node_day: float = 1.0  # … or the score that normal windows of a node exceed this often in a day
    strongest: float = 6.0  # a second counts for at most this many, reached at this multiple of the bar
    needed_s: int = 60  # seconds of alarm that open an event, …
    of_s: int = 90  # … within this many seconds
    calm_ratio: float = 0.8  # an open event is calm while its scores are below this part of the bar, …
    calm_s: int = 120  # … and is closed after being calm for this long
    forget_s: int = 600  # an event whose scores are unknown for this long is closed
    same_cause_s: int = 120  # jobs of a node with a node-wide cause that alarm within this time are one event
    longest_step_s: int = 30  # a score counts for at most this many seconds before it


class Tracker:
    """Keeps the recent alarms of every thread and the open events."""

    def __init__(self, settings: EventSettings = EventSettings(), already_open: Iterable[Event] = ()) -> None:
        """`already_open` are the open events of an earlier run; they continue or close."""
        self.settings = settings
        self._open = {event.id: OpenEvent(event, event, calm_s=-RESUME_S) for event in already_open}
        self._threads: list[tuple[str, int]] = []  # the (node, cpu) of each column of `_alarms`
        self._row_of: dict[tuple[str, int], int] = {}
        self._layout: tuple[tuple[str, ...], bytes, bytes] | None = None
        self._times: deque[tuple[int, int]] = deque()  # (end_s, seconds that this scoring counts for)
        self._alarms: deque[NDArray[np.float32]] = deque()  # (thread,) each: score over bar, 0 below the bar

    @property
    def open(self) -> tuple[Event, ...]:
        """The open events, newest first."""
        return tuple(sorted((entry.event for entry in self._open.values()), key=lambda e: (-e.onset_s, e.id)))

    def update(
        self,
        moment: Moment,
        scores: Scores,
        threshold: float,
        *,
        model: str = "",
        owners: Mapping[str, str] | None = None,
        findings: Sequence[Finding] | None = None,
    ) -> list[Change]:
        """The changes by this moment. A moment that is not newer than the last one changes nothing.

        `findings` are the answers of `assess` to the three questions; without them, scores open events.

        If time jumps back by more than `of_s`, the clock was set: recent alarms are dropped and open events stay.
        """
        if self._times and moment.end_s <= self._times[-1][0]:
            if moment.end_s > self._times[-1][0] - self.settings.of_s:
                return []
            self.forget_alarms()
        if findings is not None and self.settings.opened_by == "findings":
            alarming = [finding for finding in findings if finding.opens_event]
            step_s = self._remember(moment, scores, np.inf)
            changes = self._open_by_findings(moment, alarming, model, owners or {})
            return changes + self._review(moment, self._scores_of_findings(scores, alarming), threshold, step_s)
        bar = max(threshold * self.settings.margin, score_by_chance(moment, self.settings.chance_per_node_day))
        step_s = self._remember(moment, scores, bar)
        changes = self._open_or_extend(moment, scores, model, owners or {})
        changes += self._review(moment, scores, bar, step_s)
        return changes

    def forget_alarms(self) -> None:
        """Drop the recent alarms, because the clock was set. Open events stay."""
        self._times.clear()
        self._alarms.clear()

    def _scores_of_findings(self, scores: Scores, alarming: Sequence[Finding]) -> Scores:
        """The strength of each thread's findings as its score: 0 without one, NaN where its score is unknown."""
        strength = np.where(np.isnan(scores.score), np.float32(np.nan), np.float32(0))
        for finding in alarming:
            rows = [self._row_of[finding.node, cpu] for cpu in finding.cpus]
            strength[rows] = np.fmax(strength[rows], np.float32(finding.strength))
        return replace(scores, score=strength)

    def _open_by_findings(
        self, moment: Moment, alarming: Sequence[Finding], model: str, owners: Mapping[str, str]
    ) -> list[Change]:
        """Open or extend the event of every finding that has held long enough, one for a job and kind of cause."""
        groups: dict[tuple[str, bool], list[Finding]] = {}
        for finding in alarming:
            about = finding.job or f"\0{finding.node}", finding.cause in MEMORY_CAUSES
            groups.setdefault(about, []).append(finding)
        if not groups:
            return []
        index, changes = OpenEventIndex(self._open.values()), []
        for group in groups.values():
            lead = naming_finding(group, moment.end_s)
            if lead is None:
                continue
            new = _event_of(lead, group, moment, model, owners)
            known = index.find(new, memory=lead.cause in MEMORY_CAUSES)
            before = known.event.cause if known is not None else new.cause
            if before != new.cause and not names_better(new.cause, before):
                still = [f for f in group if f.cause == before and f.held(moment.end_s)]
                new = _event_of(still[0], group, moment, model, owners) if still else new
            changes += self._admit(new, moment, index)
        return changes

    def _remember(self, moment: Moment, scores: Scores, bar: float) -> int:
        """Store the alarms of this moment; returns the seconds since the last one."""
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
        """Move the columns of the stored alarms to the rows that the threads have in this moment."""
        layout = moment.nodes, moment.node.tobytes(), moment.cpu.tobytes()
        if layout == self._layout:
            return
        threads = [(moment.nodes[n], int(c)) for n, c in zip(moment.node, moment.cpu, strict=True)]
        column = {thread: i for i, thread in enumerate(self._threads)}
        source = np.array([column.get(thread, -1) for thread in threads], np.intp)
        self._alarms = deque(
            np.where(source >= 0, alarms[source], np.float32(0)) if len(alarms) else np.zeros(len(threads), np.float32)
            for alarms in self._alarms
        )
        self._threads, self._layout = threads, layout
        self._row_of = {thread: row for row, thread in enumerate(threads)}

    def _alarmed(self, moment: Moment) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(thread,) weighted seconds of alarm and the time of the first alarm, without alarms of an earlier job."""
        times_s = np.array([time_s for time_s, _ in self._times], np.int64)[:, None]
        steps_s = np.array([step_s for _, step_s in self._times], np.float64)
        strength = np.stack(self._alarms) * (times_s > moment.end_s - moment.age_s)  # (scoring, thread)
        alarms = strength > 0
        first_s = np.where(alarms.any(0), times_s[alarms.argmax(0), 0], moment.end_s)
        # A single scoring never opens an event, however high the score.
        return np.where(alarms.sum(0) >= 2, steps_s @ strength, 0.0), first_s

    def _open_or_extend(self, moment: Moment, scores: Scores, model: str, owners: Mapping[str, str]) -> list[Change]:
        """Open an event for each group that alarmed long enough, or merge it into the open event it belongs to."""
        alarmed_s, first_s = self._alarmed(moment)
        group = np.where(moment.job >= 0, moment.job, -1 - moment.node)  # a job, or a node's unallocated threads
        # Once one thread of a group is certain, threads that alarmed half as long join it.
        likely = np.flatnonzero((self._alarms[-1] > 0) & (2 * alarmed_s >= self.settings.needed_s))
        if not len(likely):
            return []
        likely = likely[np.argsort(group[likely], kind="stable")]
        index, rows_of_job = OpenEventIndex(self._open.values()), _rows_by_job(moment)
        changes = []
        for rows in np.split(likely, np.flatnonzero(np.diff(group[likely])) + 1):
            if alarmed_s[rows].max() < self.settings.needed_s:
                continue
            number = int(group[rows[0]])
            jobs = (moment.jobs[number],) if number >= 0 else ()
            worst = rows[np.argmax(np.nan_to_num(scores.score[rows], nan=-1.0))]
            new = Event(
                id="",
                places=places_of(moment, rows),
                jobs=jobs,
                owner=owners.get(jobs[0], "") if jobs else "",
                onset_s=int(first_s[rows].min()),
                seen_s=moment.end_s,
                end_s=None,
                score=float(np.nan_to_num(scores.score[worst])),
                view=scores.deciding_view(int(worst)),
                model=model,
            )
            known = index.find(new)
            before = known.event.cause if known else ""
            new = _diagnosed(new, moment, diagnose(moment, rows_of_job(number), before) if jobs else None)
            changes += self._admit(new, moment, index)
        return changes

    def _admit(self, new: Event, moment: Moment, index: OpenEventIndex) -> list[Change]:
        """Merge an alarm into an open event, or open one. A lasting new cause closes the event of the old cause."""
        changes = []
        known = index.find(new, memory=new.cause in MEMORY_CAUSES)
        if known is None and _is_node_wide(moment, new):
            known = index.find_on_node(new, self.settings.same_cause_s)
        if known is not None:
            since_s = new.since_s if new.by_finding else moment.end_s
            if not known.has_changed_cause(new.cause, since_s, moment.end_s, self.settings.needed_s):
                known.event = merge(known.event, new)
                index.add(known)
                return []
            index.remove(known)
            del self._open[known.event.id]
            closed = replace(known.event, end_s=max(min(known.other_since_s, known.event.seen_s), known.event.onset_s))
            changes.append(Change("closed", closed))
            new = replace(new, onset_s=known.other_since_s, since_s=max(new.since_s, closed.onset_s))
        new = replace(new, id=event_id(new.job or new.node, bool(new.jobs), new.onset_s, new.cause))
        new = replace(new, title=write_title(subject_of(new.jobs, new.node, new.threads), new.cause))
        self._open[new.id] = OpenEvent(new, new)
        index.add(self._open[new.id])
        return [*changes, Change("opened", new)]

    def entitle(self, event_id: str, title: str) -> None:
        """Give an open event its title, when its explanation is known."""
        if entry := self._open.get(event_id):
            entry.event, entry.reported = replace(entry.event, title=title), replace(entry.reported, title=title)

    def _review(self, moment: Moment, scores: Scores, bar: float, step_s: int) -> list[Change]:
        """Update open events; close those that are calm, whose job ended, or whose scores stay unknown."""
        if not self._open:
            return []
        changes = []
        number = {job: i for i, job in enumerate(moment.jobs)}
        for entry in list(self._open.values()):
            event = entry.event
            places = [(node, cpu) for node, cpus in event.places for cpu in cpus]
            rows = [self._row_of[place] for place in places if place in self._row_of]
            holders = {number[job] for job in event.jobs if job in number} if event.jobs else {-1}
            own = [row for row in rows if int(moment.job[row]) in holders]
            taken = bool(rows) and not own  # the job has ended, or jobs hold all of the threads that were free
            if not event.jobs:
                event = without_places(event, {self._threads[row] for row in set(rows) - set(own)})
            score = scores.score[own]
            known = score[~np.isnan(score)]
            if len(known) and known.max() > bar * self.settings.calm_ratio:
                entry.calm_s = entry.unknown_s = 0
                if known.max() > bar:
                    event = replace(event, seen_s=moment.end_s, score=max(event.score, float(known.max())))
            elif len(known):
                entry.calm_s, entry.unknown_s = entry.calm_s + min(step_s, self.settings.longest_step_s), 0
            else:
                entry.unknown_s += step_s
            if taken or entry.calm_s >= self.settings.calm_s or entry.unknown_s >= self.settings.forget_s:
                event = replace(event, end_s=event.seen_s)
                del self._open[event.id]
                changes.append(Change("closed", event))
                continue
            entry.event = event
            if entry.report_due():
                entry.reported = event
                changes.append(Change("extended", event))
        return changes


def _event_of(
    lead: Finding, findings: Sequence[Finding], moment: Moment, model: str, owners: Mapping[str, str]
) -> Event:
    """The event of the finding that names it, on all nodes of its job. Other findings add their strength."""
    places: Places = ()
    for finding in (lead, *(finding for finding in findings if finding.cause == lead.cause)):
        places = join_places(places, ((finding.node, finding.cpus),))
    return Event(
        id="",
        places=places,
        jobs=(lead.job,) if lead.job else (),
        owner=owners.get(lead.job, ""),
        onset_s=lead.since_s,
        seen_s=moment.end_s,
        end_s=None,
        score=max(finding.strength for finding in findings),
        view=lead.question,
        model=model,
        cause=lead.cause,
        question=lead.question,
        since_s=lead.since_s,
    )


def _diagnosed(new: Event, moment: Moment, diagnosis: Diagnosis | None) -> Event:
    """The event with its cause, and with all threads that show it."""
    if diagnosis is None:
        return replace(new, cause=UNUSUAL, question=cause_of(UNUSUAL).question)
    places = join_places(new.places, places_of(moment, diagnosis.telling))
    question = cause_of(diagnosis.cause).question
    return replace(new, cause=diagnosis.cause, question=question, places=places, since_s=diagnosis.since_s)


def _is_node_wide(moment: Moment, event: Event) -> bool:
    """Whether the channel of the node that belongs to the cause shows that the whole node has it."""
    channel = cause_of(event.cause).node_channel
    if not event.jobs or moment.node_channels is None or channel not in moment.node_channels.schema.names:
        return False
    column = moment.node_channels.schema.index(channel)
    values = moment.node_channels.values[moment.nodes.index(event.node), -FRESH_S:, column]
    known = values[~np.isnan(values)]
    return bool(len(known)) and float(known.mean()) > NODE_WIDE


def _rows_by_job(moment: Moment) -> Callable[[int], NDArray[np.intp]]:
    """A function that finds the rows of a job, from one sort of all threads."""
    order = np.argsort(moment.job, kind="stable")
    first = np.searchsorted(moment.job[order], np.arange(len(moment.jobs) + 1))

    def rows(number: int) -> NDArray[np.intp]:
        return order[first[number] : first[number + 1]]

    return rows


def score_by_chance(moment: Moment, per_node_day: float) -> float:
    """The score that normal windows of the largest node exceed `per_node_day` times in a day.

    A score is -log10 of the share of normal windows above it, and a thread has 864 windows a day.
    """
    windows = np.bincount(moment.node, minlength=1).max() * DAY_S / WINDOW_S
    return float(np.log10(windows) - np.log10(per_node_day))
