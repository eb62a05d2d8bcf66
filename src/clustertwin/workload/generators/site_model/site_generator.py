"""The generator that learns a site: a log -> tables of users, sessions and weeks -> jobs of past or coming weeks.

1. `job_kinds`: what users repeat. 2. `session_fit`: what follows what in a session. 3. `site_calendar`: who works when.
4. `week_draw` draws the jobs of a week. 5. `level_forecast` and `population` continue the calendar.

A synthetic log passes through the learnt weeks: their sessions, mixed with those of the neighbouring weeks, are drawn
anew, and the run times of a week follow its work. `future` draws weeks that have not happened yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S, WEEK_S
from clustertwin.workload.generators.contract import Fitted, GeneratorState, check_log
from clustertwin.workload.generators.crossover.sessions import session_starts
from clustertwin.workload.generators.job_limits import limits
from clustertwin.workload.generators.site_model.job_kinds import KindTable
from clustertwin.workload.generators.site_model.population import FutureWeeks, SiteLevels, draw_weeks
from clustertwin.workload.generators.site_model.queue_caution import CAUTIONS, USUAL, learn_caution
from clustertwin.workload.generators.site_model.session_fit import (
    CutLog,
    SortedJobs,
    fit_sessions,
    length_classes,
    phases,
)
from clustertwin.workload.generators.site_model.session_walk import SessionTables
from clustertwin.workload.generators.site_model.site_calendar import SiteCalendar, SubmittedWork
from clustertwin.workload.generators.site_model.week_draw import (
    EntryMeans,
    PlannedSessions,
    WeekAim,
    WeekDraw,
    WeekJobs,
)
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
        waiting: list[WeekJobs] = []
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
            late = WeekJobs(*(np.concatenate(columns) for columns in zip(*waiting, strict=True)))
            late = late.take(np.argsort(late.submit_s, kind="stable"))
            due = int(np.searchsorted(late.submit_s, ready_s))
            waiting = [late.take(slice(due, None))]
            ready = late.take(slice(0, min(due, n - drawn)))
            if len(ready.kind):
                block = self._table(ready._replace(submit_s=ready.submit_s - skip_s), drawn)
                yield replace(block, epoch_s=block.epoch_s + skip_s) if block.epoch_s else block
            drawn += len(ready.kind)

    @property
    def _week_draw(self) -> WeekDraw:
        return WeekDraw(self.kinds, self.tables, self.calendar, self.entries, self.settings.pause_s)

    def _period_s(self) -> float:
        """The length of a pass: whole weeks of a long log, whole days of a short one."""
        span_s = self.calendar.end_s - self.calendar.first_s
        unit_s = WEEK_S if span_s >= 2 * WEEK_S else DAY_S
        return unit_s * max(1.0, float(np.round(span_s / unit_s)))

    def _learnt_week(self, week: int, pass_s: float, due: tuple[float, float], rng: np.random.Generator) -> WeekJobs:
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
        caution = CAUTIONS[USUAL if self.settings.caution is None else self.settings.caution]
        aim = WeekAim(calendar.slot_sessions[week].astype(np.float64), work, caution=caution)
        drawn = self._week_draw.jobs(sessions, aim, begin_s, rng)
        return drawn._replace(submit_s=np.maximum(drawn.submit_s, calendar.first_s) + pass_s)

    def _counts(self, entry: Ints, share: Floats, due: tuple[float, float], rng: np.random.Generator) -> Ints:
        """(row,) sessions to draw, so that jobs and work are about those of `due`."""
        length, work = self.entries.length[entry].astype(np.float64), self.entries.work[entry].astype(np.float64)
        return even_counts(tilted(share, length, work, due), length, rng)

    def _future_week(self, coming: FutureWeeks, week: int, rng: np.random.Generator) -> WeekJobs:
        rows = slice(coming.row_at[week], coming.row_at[week + 1])
        counts = self._counts(
            coming.row_entry[rows], coming.row_sessions[rows], (coming.jobs[week], coming.work[week]), rng
        )
        sessions = PlannedSessions(*(np.repeat(column[rows], counts)
                                     for column in (coming.row_entry, coming.row_user, coming.row_code)))  # fmt: skip
        share = coming.slots[week] / max(float(coming.slots[week].sum()), 1e-9)
        begin_s = self.calendar.end_s + week * WEEK_S
        aim = WeekAim(coming.slots[week], coming.work[week] * share, 7, 2.5, 8, 0.25)
        return self._week_draw.jobs(sessions, aim, begin_s, rng)

    def _table(self, drawn: WeekJobs, before: int) -> Jobs:
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
