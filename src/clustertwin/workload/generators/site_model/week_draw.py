"""The sessions of a week, and what its jobs are to come close to -> the jobs.

Sessions are walked through the states of their users (`session_walk`), get a day and an hour, and their run times are
shifted until the work of the week meets the aim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S
from clustertwin.workload.generators.job_rows import on_clock
from clustertwin.workload.generators.site_model.job_kinds import KindTable
from clustertwin.workload.generators.site_model.queue_caution import CAUTIONS, Caution
from clustertwin.workload.generators.site_model.session_walk import (
    SessionTables,
    WalkedJobs,
    WorkTargets,
    calm_starts,
    choose_slots,
    run_times,
    separate,
    walk,
)
from clustertwin.workload.generators.site_model.site_calendar import SiteCalendar

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class EntryMeans(NamedTuple):
    """(entry,) the sessions of each entry on average."""

    length: NDArray[np.float32]  # jobs
    work: NDArray[np.float32]
    length_class: Ints

    def lengths(self, entry: Ints, rng: np.random.Generator) -> Ints:
        """Jobs per session, within the class of the entry and with its mean."""
        low = 2.0 ** self.length_class[entry]
        high = 2 * low - 1
        mean = np.clip(self.length[entry], low + 0.02 * (high - low), high - 0.02 * (high - low))
        power = np.where(high > low, (high - mean) / np.maximum(mean - low, 1e-9), 1.0)
        return np.round(low + (high - low) * rng.random(len(entry)) ** power).astype(np.int64)


class PlannedSessions(NamedTuple):
    """The sessions of a week that is to be drawn."""

    entry: Ints
    user: Ints  # index in the calendar
    code: Ints  # the user's code in the job table


class WeekAim(NamedTuple):
    """What the jobs of a week are to come close to. In a week of the log, the work of each day is known."""

    sessions: Floats  # (slot,)
    work: Floats  # (slot,)
    days: int = 1  # the work is matched over this many days together
    furthest: float = 1.0  # shift of run times, in normal scores
    candidates: int = 4  # draws; the one whose work comes closest is kept
    excess: float = 0.1  # share of work above the aim, before run times are shifted
    caution: Caution = CAUTIONS[0]  # how carefully sessions avoid hours at which the machine is full

    def targets(self, day: Ints) -> WorkTargets:
        return WorkTargets(day // self.days, self.work.reshape(7 // self.days, -1).sum(axis=1), self.furthest)


class WeekJobs(NamedTuple):
    """Jobs before they become a table."""

    submit_s: Floats
    kind: Ints
    user: Ints
    run_s: Floats

    def take(self, which: Any) -> WeekJobs:
        return WeekJobs(*(column[which] for column in self))


class _WalkedSessions(NamedTuple):
    """Sessions before they have a date; the jobs of a session follow each other."""

    jobs: WalkedJobs
    states: Ints  # (job,)
    score: Floats  # (job,) normal score of the run time
    work: Floats  # (session,)

    def take(self, kept: NDArray[np.bool_]) -> _WalkedSessions:
        """The sessions of a mask."""
        length, after_s, size, run_s = self.jobs
        of_kept = np.repeat(kept, length)
        jobs = WalkedJobs(length[kept], after_s[of_kept], size[of_kept], run_s[of_kept])
        return _WalkedSessions(jobs, self.states[of_kept], self.score[of_kept], self.work[kept])


@dataclass(frozen=True, slots=True)
class WeekDraw:
    """What a site model knows when it draws a week."""

    kinds: KindTable
    tables: SessionTables
    calendar: SiteCalendar
    entries: EntryMeans
    pause_s: float  # a longer one ends a session

    def jobs(self, sessions: PlannedSessions, aim: WeekAim, begin_s: float, rng: np.random.Generator) -> WeekJobs:
        """The jobs of these sessions, in a week that begins at `begin_s`."""
        walked, sessions = self._closest(sessions, aim, rng)
        length, after_s = walked.jobs.length, walked.jobs.after_s
        order = np.argsort(-walked.work, kind="stable")
        liking = self.calendar.liking(sessions.user)
        slot = choose_slots(order, walked.work, aim.work, aim.sessions, liking, rng.random(len(order)))
        start_s = begin_s + self._starts(walked.jobs, sessions.user, slot, aim.caution, rng)
        duration_s = after_s[np.cumsum(length) - 1] if len(order) else np.empty(0)
        by_user = np.lexsort((start_s, sessions.code))
        pause_s = self.pause_s * rng.random(len(order))
        start_s = separate(by_user, sessions.code, start_s, duration_s, pause_s)
        submit_s = after_s + np.repeat(start_s, length)
        order = np.argsort(submit_s, kind="stable")
        submit_s, states, user = submit_s[order], walked.states[order], np.repeat(sessions.code, length)[order]
        kind = self.tables.state_kind[states]
        targets = aim.targets(np.clip(((submit_s - begin_s) // DAY_S).astype(np.int64), 0, 6))
        run_s = self._run_times(states, walked.score[order], targets)
        facts = self.kinds.facts
        resolution_s = facts["resolution_s"]
        submit_s = on_clock(submit_s, facts.get("clock_s", 1.0), facts.get("first_s", 0.0))
        return WeekJobs(submit_s, kind, user, np.round(np.round(run_s / resolution_s) * resolution_s, 3))

    def _closest(
        self, sessions: PlannedSessions, aim: WeekAim, rng: np.random.Generator
    ) -> tuple[_WalkedSessions, PlannedSessions]:
        """Of several walks the one whose work comes closest to the aim, without the sessions that are too much."""
        work = float(aim.work.sum())
        walks = (self._walked(sessions.entry, rng) for _ in range(aim.candidates))
        best = min(walks, key=lambda walked: abs(walked.work.sum() - work))
        kept = _within(best.work, (1 + aim.excess) * work)
        if kept.all():
            return best, sessions
        return best.take(kept), PlannedSessions(*(column[kept] for column in sessions))

    def _walked(self, entry: Ints, rng: np.random.Generator) -> _WalkedSessions:
        length = self.entries.lengths(entry, rng)
        jobs = int(length.sum())
        states, after_s, score = walk(self.tables, entry, length, rng.random(jobs), rng.standard_normal((jobs, 2)))
        free = WorkTargets(np.zeros(jobs, dtype=np.int64), np.zeros(1), 0.0)
        size, run_s = self.kinds.columns["size"][self.tables.state_kind[states]], self._run_times(states, score, free)
        work = np.bincount(np.repeat(np.arange(len(entry)), length), size * run_s, len(entry)).astype(np.float64)
        return _WalkedSessions(WalkedJobs(length, after_s, size, run_s), states, score, work)

    def _run_times(self, states: Ints, score: Floats, targets: WorkTargets) -> Floats:
        kind = self.tables.state_kind[states]
        return run_times(self.tables, states, score, self.kinds.bounds(kind), self.kinds.columns["size"][kind], targets)

    def _starts(self, jobs: WalkedJobs, user: Ints, slot: Ints, caution: Caution, rng: np.random.Generator) -> Floats:
        """(session,) seconds into the week. Users prefer hours at which the machine is not full."""
        starts_s = [self.calendar.seconds(user, slot, uniform) for uniform in rng.random((caution.offers, len(user)))]
        if caution.offers == 1:
            return starts_s[0]
        machine = float(self.kinds.facts["machine_size"])
        order, offered = rng.permutation(len(user)), np.stack(starts_s, axis=1)
        return calm_starts(order, offered, jobs, machine, caution.passes, caution.whole_job)


def _within(work: Floats, most: float) -> NDArray[np.bool_]:
    """Which sessions stay so that their work is about `most`; the heaviest leave first."""
    kept = np.ones(len(work), dtype=bool)
    excess = float(work.sum()) - most
    for session in np.argsort(-work, kind="stable"):
        if excess <= 0 or kept.sum() == 1:
            break
        if work[session] <= excess + most / 10:
            kept[session] = False
            excess -= float(work[session])
    return kept
