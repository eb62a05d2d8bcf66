"""The generator that learns a site: a log -> tables of users, sessions and weeks -> jobs of past or coming weeks.

1. `job_kinds`: what users repeat. 2. `session_fit`: what follows what in a session. 3. `site_calendar`: who works when.
4. `session_walk` draws the jobs of a week. 5. `level_forecast` and `population` continue the calendar.

A synthetic log passes through the learnt weeks: their sessions, mixed with those of the neighbouring weeks, are drawn
anew, and the run times of a week follow its work. `future` draws weeks that have not happened yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S, WEEK_S
from clustertwin.workload.generators.contract import Fitted, GeneratorState, check_log
from clustertwin.workload.generators.crossover.sessions import session_starts
from clustertwin.workload.generators.job_limits import limits
from clustertwin.workload.generators.job_rows import on_clock
from clustertwin.workload.generators.site_model.job_kinds import RAN_0_S, REACHED_LIMIT, KindTable
from clustertwin.workload.generators.site_model.population import FutureWeeks, SiteLevels, draw_weeks
from clustertwin.workload.generators.site_model.queue_caution import CAUTIONS, USUAL, Caution, learn_caution
from clustertwin.workload.generators.site_model.session_fit import (
    CutLog,
    SortedJobs,
    fit_sessions,
    length_classes,
    phases,
)
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
from clustertwin.workload.generators.site_model.site_calendar import SiteCalendar, SubmittedWork
from clustertwin.workload.generators.superposition import concatenate
from clustertwin.workload.generators.workload_change import ModelledLog, check_count, even_counts
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_sizes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK_JOBS = 8_000
LEAST_WEEKS = 8  # to learn from how a level drifts
#: Rates of sessions are tilted towards more or less work by at most this power of it, and so far from its mean (log).
MOST_TILT, HEAVIEST, TILTS = 2.0, 3.0, 20
#: An array of thousands of jobs stays whole: in parts it would not arrive at once, and waits would be too short.
MOST_SESSION_JOBS = 100_000
SPARE = 1.01  # jobs drawn over those needed


class EntryMeans(NamedTuple):
    """(entry,) the sessions of each entry on average."""

    length: NDArray[np.float32]  # jobs
    work: NDArray[np.float32]
    length_class: Ints


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


class _WalkedSessions(NamedTuple):
    """Sessions before they have a date; the jobs of a session follow each other."""

    length: Ints  # (session,)
    states: Ints  # (job,)
    after_s: Floats  # (job,) since the session began
    score: Floats  # (job,) normal score of the run time
    work: Floats  # (session,)
    jobs: WalkedJobs

    def take(self, kept: NDArray[np.bool_]) -> _WalkedSessions:
        """The sessions of a mask."""
        jobs = np.repeat(kept, self.length)
        return _WalkedSessions(
            self.length[kept],
            self.states[jobs],
            self.after_s[jobs],
            self.score[jobs],
            self.work[kept],
            WalkedJobs(self.length[kept], self.after_s[jobs], self.jobs.size[jobs], self.jobs.run_s[jobs]),
        )


class _DrawnJobs(NamedTuple):
    """Jobs before they become a table."""

    submit_s: Floats
    kind: Ints
    user: Ints
    run_s: Floats

    def take(self, which: Any) -> _DrawnJobs:
        return _DrawnJobs(*(column[which] for column in self))


@dataclass(frozen=True, slots=True)
class SiteModel:
    """The settings. They are the same for all logs."""

    pause_s: float = 3600.0  # a longer pause ends a session
    longest_s: float = 4 * 3600.0  # a longer session is cut
    neighbours: float = 0.25  # share of a week's sessions that come from each of the two weeks beside it
    caution: int | None = None  # index of `CAUTIONS` for the sessions of learnt weeks; None learns it from the log

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedSiteModel:
        check_log(jobs)
        kinds, kind = KindTable.of(jobs)
        order = np.lexsort((jobs.submit_s, jobs.user))
        log, kind = jobs.take(order), kind[order]
        begins = session_starts(log.submit_s, log.user, self.pause_s, self.longest_s, MOST_SESSION_JOBS)
        session = np.cumsum(np.bincount(begins, minlength=len(log))) - 1
        lengths = np.diff(np.append(begins, len(log)))
        profile = phases(log.user)
        first_of = np.flatnonzero(np.append(True, np.diff(profile) != 0))
        # A session belongs to the profile of its first job.
        profile = profile[begins][session]
        cut = CutLog(order, session, profile, log.user[first_of], length_classes(lengths))
        limit_s, over = limits(log)
        excess_s = np.where(over, log.run_s - limit_s, log.run_s)
        ended = np.where(over, 2 + log.status - log.status.min(), (log.run_s == 0).astype(np.int64))
        columns = SortedJobs(kind, excess_s, limit_s, np.diff(log.submit_s, prepend=0.0), ended)
        tables, entry = fit_sessions(cut, columns)
        work = SubmittedWork(log.submit_s, log.user, counted_sizes(log) * log.run_s)
        calendar = SiteCalendar.of(log.submit_s[begins], log.user[begins], entry, work)
        counts = np.bincount(entry)
        mean_length = (np.bincount(entry, lengths) / np.maximum(counts, 1)).astype(np.float32)
        entry_class = np.zeros(len(counts), dtype=np.int64)
        entry_class[entry] = cut.length_class
        session_work = np.add.reduceat(work.work, begins)
        mean_work = (np.bincount(entry, session_work) / np.maximum(counts, 1)).astype(np.float32)
        fitted = FittedSiteModel(self, kinds, tables, calendar, EntryMeans(mean_length, mean_work, entry_class))
        if self.caution is not None:
            return fitted

        def cautious(caution: int) -> FittedSiteModel:
            return replace(fitted, settings=replace(self, caution=caution))

        return cautious(learn_caution(jobs, lambda caution, n, rng: cautious(caution).sample(n, rng)))


@dataclass(frozen=True, slots=True)
class FittedSiteModel(Fitted):
    settings: SiteModel
    kinds: KindTable
    tables: SessionTables
    calendar: SiteCalendar
    entries: EntryMeans

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        check_count(n)
        return self._blocks(n, rng)

    def modelled_log(self) -> ModelledLog:
        names = tuple(self.kinds.facts["names"].get("user", ()))
        return ModelledLog(self.kinds.facts["machine_size"], frozenset(self.calendar.user_code.tolist()), names)

    def levels(self) -> SiteLevels:
        """The levels that coming weeks start from."""
        return SiteLevels.of(self.calendar, self.kinds.facts["machine_size"] * WEEK_S)

    def future(self, weeks: int, rng: np.random.Generator, levels: SiteLevels | None = None) -> Jobs:
        """One draw of the weeks after the log. Time counts on from the log; users may be new.

        Give `levels` if you draw several times: they take a second to fit.
        """
        coming = draw_weeks(self.calendar, levels or self.levels(), weeks, rng)
        parts: list[Jobs] = []
        for week in range(weeks):
            parts.append(self._table(self._future_week(coming, week, rng), 0))
        jobs = concatenate(parts)
        jobs = jobs.take(jobs.submit_s < self.calendar.end_s + weeks * WEEK_S)
        jobs = jobs.take(np.argsort(jobs.submit_s, kind="stable"))
        names = dict(jobs.names)
        if "user" in names:
            names["user"] = (*names["user"], *(f"new-user-{i + 1}" for i in range(coming.new_users)))
        return replace(jobs, id=np.arange(1, len(jobs) + 1), names=names)

    def not_learnt(self) -> tuple[str, ...]:
        """What the log is too short or too plain to say; the rest is learnt."""
        calendar, columns = self.calendar, self.kinds.columns
        weeks = calendar.settled()
        known = weeks.stop - weeks.start
        gaps = {
            f"how the load drifts: the log has too few whole weeks ({known}), so the width of intervals is a guess":
                known < LEAST_WEEKS,
            "the seasons of the year: the log covers less than two years": calendar.weeks < 104,
            "how users come and go: the log names no users": not np.any(calendar.user_code >= 0),
            "how users come and go: the log has one user": len(calendar.user_code) == 1 and calendar.user_code[0] >= 0,
            "limits: they repeat the run times": self.kinds.facts["limit_is_run_time"],
            "limits: the log has none":
                bool(np.all(columns["request_s"] <= 0)) and not self.kinds.facts["limit_is_run_time"],
            "what distinguishes jobs: all have one kind": len(columns["size"]) == 1,
            "weekdays: the log has no date, so days count from its start": not self.kinds.facts["epoch_s"],
            "sessions: no user submits a job within an hour of another": bool(np.all(self.entries.length_class == 0)),
        }  # fmt: skip
        return tuple(reason for reason, applies in gaps.items() if applies)

    def state(self) -> GeneratorState:
        parts = {
            "kinds": self.kinds.columns,
            "tables": self.tables._asdict(),
            "calendar": self.calendar._asdict(),
            "entries": self.entries._asdict(),
        }
        arrays = {f"{part}.{name}": values for part, columns in parts.items() for name, values in columns.items()}
        return GeneratorState({"settings": asdict(self.settings), "log": self.kinds.facts}, arrays)

    @classmethod
    def from_state(cls, state: GeneratorState) -> FittedSiteModel:
        def part(name: str) -> dict[str, NDArray[Any]]:
            return {key.partition(".")[2]: state.arrays[key] for key in state.arrays if key.startswith(f"{name}.")}

        settings = dict(state.facts["settings"])
        if "offers" in settings:  # saved before caution was learnt
            settings["caution"] = 0 if settings.pop("offers") == 1 else 1
        return cls(
            SiteModel(**settings), KindTable(part("kinds"), state.facts["log"]),
            SessionTables(**part("tables")), SiteCalendar(**part("calendar")), EntryMeans(**part("entries")),
        )  # fmt: skip

    def _blocks(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        calendar = self.calendar
        expected = int(calendar.slot_jobs.sum())
        week = int(rng.choice(calendar.weeks, p=calendar.slot_jobs.sum(axis=1) / expected)) if 2 * n < expected else 0
        skip_s = max(float(calendar.start_s[0]) + week * WEEK_S, 0.0) if week else 0.0
        # A log as long as the real one ends within one pass.
        factor = SPARE * n / expected if abs(n / expected - 1) < 0.05 else 1.0
        pass_s, drawn, due_jobs, due_work = 0.0, 0, 0.0, 0.0
        waiting: list[_DrawnJobs] = []
        while drawn < n:
            due_jobs += factor * float(calendar.slot_jobs[week].sum())
            due_work += float(calendar.slot_work[week].sum())
            waiting.append(self._learnt_week(week, pass_s, (due_jobs, due_work), rng))
            due_jobs -= len(waiting[-1].kind)
            due_work -= float((self.kinds.columns["size"][waiting[-1].kind] * waiting[-1].run_s).sum())
            week += 1
            if week == calendar.weeks:
                week, pass_s = 0, pass_s + self._period_s()
            ready_s = pass_s + (float(calendar.start_s[0]) + week * WEEK_S if week else calendar.first_s)
            if sum(len(part.kind) for part in waiting) < min(BLOCK_JOBS, n - drawn):
                continue
            late = _DrawnJobs(*(np.concatenate(columns) for columns in zip(*waiting, strict=True)))
            late = late.take(np.argsort(late.submit_s, kind="stable"))
            due = int(np.searchsorted(late.submit_s, ready_s))
            waiting = [late.take(slice(due, None))]
            ready = late.take(slice(0, min(due, n - drawn)))
            if len(ready.kind):
                block = self._table(ready._replace(submit_s=ready.submit_s - skip_s), drawn)
                yield replace(block, epoch_s=block.epoch_s + skip_s) if block.epoch_s else block
            drawn += len(ready.kind)

    def _period_s(self) -> float:
        """The length of a pass: whole weeks of a long log, whole days of a short one."""
        span_s = self.calendar.end_s - self.calendar.first_s
        unit_s = WEEK_S if span_s >= 2 * WEEK_S else DAY_S
        return unit_s * max(1.0, float(np.round(span_s / unit_s)))

    def _learnt_week(self, week: int, pass_s: float, due: tuple[float, float], rng: np.random.Generator) -> _DrawnJobs:
        """A week of the log, drawn again; `due` is about how many jobs and how much work it has."""
        calendar, beside = self.calendar, self.settings.neighbours
        low, high = np.searchsorted(calendar.row_week, [week - 1, week + 2])
        distance = np.abs(calendar.row_week[low:high] - week)
        share = np.where(distance == 0, 1 - 2 * beside, beside).astype(np.float64) * calendar.row_sessions[low:high]
        entry = calendar.row_entry[low:high]
        counts = self._counts(entry, share, due, rng)
        user = np.repeat(calendar.row_user[low:high], counts)
        sessions = PlannedSessions(np.repeat(entry, counts), user, calendar.user_code[user])
        begin_s = float(calendar.start_s[0]) + week * WEEK_S
        work = calendar.slot_work[week].astype(np.float64)
        work *= np.clip(due[1] / max(float(work.sum()), 1e-9), 0.5, 1.5)
        aim = WeekAim(calendar.slot_sessions[week].astype(np.float64), work, caution=self._caution())
        drawn = self._draw(sessions, aim, begin_s, rng)
        return drawn._replace(submit_s=np.maximum(drawn.submit_s, calendar.first_s) + pass_s)

    def _counts(self, entry: Ints, share: Floats, due: tuple[float, float], rng: np.random.Generator) -> Ints:
        """(row,) sessions to draw, so that jobs and work are about those of `due`."""
        length, work = self.entries.length[entry].astype(np.float64), self.entries.work[entry].astype(np.float64)
        return even_counts(tilted(share, length, work, due), length, rng)

    def _future_week(self, coming: FutureWeeks, week: int, rng: np.random.Generator) -> _DrawnJobs:
        rows = slice(coming.row_at[week], coming.row_at[week + 1])
        counts = self._counts(
            coming.row_entry[rows], coming.row_sessions[rows], (coming.jobs[week], coming.work[week]), rng
        )
        sessions = PlannedSessions(*(np.repeat(column[rows], counts)
                                     for column in (coming.row_entry, coming.row_user, coming.row_code)))  # fmt: skip
        share = coming.slots[week] / max(float(coming.slots[week].sum()), 1e-9)
        begin_s = self.calendar.end_s + week * WEEK_S
        aim = WeekAim(coming.slots[week], coming.work[week] * share, 7, 2.5, 8, 0.25)
        return self._draw(sessions, aim, begin_s, rng)

    def _draw(self, sessions: PlannedSessions, aim: WeekAim, begin_s: float, rng: np.random.Generator) -> _DrawnJobs:
        """The jobs of these sessions, in a week that begins at `begin_s`."""
        work = aim.work
        best = self._walked(sessions.entry, rng)
        for _ in range(aim.candidates - 1):
            other = self._walked(sessions.entry, rng)
            if abs(other.work.sum() - work.sum()) < abs(best.work.sum() - work.sum()):
                best = other
        kept = _within(best.work, (1 + aim.excess) * float(work.sum()))
        if not kept.all():
            best, sessions = best.take(kept), PlannedSessions(*(column[kept] for column in sessions))
        order = np.argsort(-best.work, kind="stable")
        liking = self.calendar.liking(sessions.user)
        slot = choose_slots(order, best.work, work, aim.sessions, liking, rng.random(len(order)))
        start_s = begin_s + self._starts(best, sessions.user, slot, aim.caution, rng)
        duration_s = best.after_s[np.cumsum(best.length) - 1] if len(order) else np.empty(0)
        by_user = np.lexsort((start_s, sessions.code))
        pause_s = self.settings.pause_s * rng.random(len(order))
        start_s = separate(by_user, sessions.code, start_s, duration_s, pause_s)
        submit_s = best.after_s + np.repeat(start_s, best.length)
        order = np.argsort(submit_s, kind="stable")
        submit_s, states, user = submit_s[order], best.states[order], np.repeat(sessions.code, best.length)[order]
        kind = self.tables.state_kind[states]
        size, bounds = self.kinds.columns["size"][kind], self._bounds(kind)
        targets = aim.targets(np.clip(((submit_s - begin_s) // DAY_S).astype(np.int64), 0, 6))
        run_s = run_times(self.tables, states, best.score[order], bounds, size, targets)
        facts = self.kinds.facts
        resolution_s = facts["resolution_s"]
        submit_s = on_clock(submit_s, facts.get("clock_s", 1.0), facts.get("first_s", 0.0))
        return _DrawnJobs(submit_s, kind, user, np.round(np.round(run_s / resolution_s) * resolution_s, 3))

    def _caution(self) -> Caution:
        return CAUTIONS[USUAL if self.settings.caution is None else self.settings.caution]

    def _starts(
        self, walked: _WalkedSessions, user: Ints, slot: Ints, caution: Caution, rng: np.random.Generator
    ) -> Floats:
        """(session,) seconds into the week. Users prefer hours at which the machine is not full."""
        starts_s = [self.calendar.seconds(user, slot, uniform) for uniform in rng.random((caution.offers, len(user)))]
        if caution.offers == 1:
            return starts_s[0]
        machine = float(self.kinds.facts["machine_size"])
        order, offered = rng.permutation(len(user)), np.stack(starts_s, axis=1)
        return calm_starts(order, offered, walked.jobs, machine, caution.passes, caution.whole_job)

    def _walked(self, entry: Ints, rng: np.random.Generator) -> _WalkedSessions:
        length = self._lengths(entry, rng)
        jobs = int(length.sum())
        states, after_s, score = walk(
            self.tables, entry, length, np.zeros(len(entry)), rng.random(jobs), rng.standard_normal((jobs, 2))
        )
        kind = self.tables.state_kind[states]
        size, free = self.kinds.columns["size"][kind], WorkTargets(np.zeros(jobs, dtype=np.int64), np.zeros(1), 0.0)
        run_s = run_times(self.tables, states, score, self._bounds(kind), size, free)
        work: Floats = np.bincount(np.repeat(np.arange(len(entry)), length), size * run_s, len(entry)).astype(
            np.float64
        )
        return _WalkedSessions(length, states, after_s, score, work, WalkedJobs(length, after_s, size, run_s))

    def _lengths(self, entry: Ints, rng: np.random.Generator) -> Ints:
        """Jobs per session, within the class of the entry and with its mean."""
        low = 2.0 ** self.entries.length_class[entry]
        high = 2 * low - 1
        mean = np.clip(self.entries.length[entry], low + 0.02 * (high - low), high - 0.02 * (high - low))
        power = np.where(high > low, (high - mean) / np.maximum(mean - low, 1e-9), 1.0)
        return np.round(low + (high - low) * rng.random(len(entry)) ** power).astype(np.int64)

    def _bounds(self, kind: Ints) -> Floats:
        """(job, 3) the bounds of a run time, and the limit if it counts from there."""
        facts, columns = self.kinds.facts, self.kinds.columns
        limit_s, over = columns["request_s"][kind], columns["over"][kind] == REACHED_LIMIT
        ran_0_s = columns["over"][kind] == RAN_0_S
        least_s = np.where(over | ran_0_s, 0.0, facts["least_run_s"])
        below_s = np.where(limit_s > 0, limit_s - facts["resolution_s"], np.inf)
        below_s = np.minimum(below_s, facts.get("most_run_s", np.inf))  # older saved models lack it
        most_s = np.where(over, facts["overrun_s"], np.where(ran_0_s, 0.0, np.maximum(below_s, least_s)))
        return np.column_stack([least_s, most_s, np.where(over, limit_s, 0.0)])

    def _table(self, drawn: _DrawnJobs, before: int) -> Jobs:
        return self.kinds.jobs(drawn.kind, drawn.user, drawn.submit_s, drawn.run_s, before)


def tilted(share: Floats, length: Floats, work: Floats, due: tuple[float, float]) -> Floats:
    """(row,) rates of sessions that have `due` jobs and work on average.

    Sessions with more work per job become more or less frequent, by a factor that is the same power of it for all rows.

    >>> tilted(np.ones(2), np.ones(2), np.array([1.0, 3.0]), (2.0, 5.0)).round(2).tolist()
    [0.5, 1.5]
    """
    heavy = np.log(np.maximum(work, 1e-9) / np.maximum(length, 1e-9))
    heavy = np.clip(heavy - np.average(heavy, weights=share + 1e-12), -HEAVIEST, HEAVIEST) if len(heavy) else heavy
    low, high, rate = -MOST_TILT, MOST_TILT, share
    for _ in range(TILTS):
        rate = share * np.exp((low + high) / 2 * heavy)
        rate = rate * (max(due[0], 0.0) / max(float((rate * length).sum()), 1e-9))
        if float((rate * work).sum()) < due[1]:
            low = (low + high) / 2
        else:
            high = (low + high) / 2
    return rate


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
