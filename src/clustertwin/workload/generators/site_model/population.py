"""The users of coming weeks: a calendar -> weeks in which users stay, return, leave and arrive, with their sessions.

How likely a user works in a week depends on how long ago the user last did; the shares come from the log. New users
arrive at the rate of the log's second half, and each behaves like some user of the log. In a week, an active user does
what the user (or the model of a new user) did in one of the past active weeks, more often a recent one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.generators.site_model.level_forecast import LevelForecast, without_outages
from clustertwin.workload.generators.site_model.site_calendar import SiteCalendar

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LONGEST_ABSENCE = 26  # weeks; a user who was away for longer counts as away for this long
RECENT_WEEKS = 8.0  # the weight of a past week falls by a factor of e in this many weeks
#: A load above the first lets the queue grow. It may become LONGER_QUEUE times as long as the longest of the log,
#: and SPARE_QUEUE weeks of the whole machine longer, divided by the weeks of the log.
SUSTAINED, LONGER_QUEUE, SPARE_QUEUE = 0.9, 2.0, 0.6
MOST_WEEKS = 260  # the level and its drift are learnt from the last five years
SHRUNK = 0.8  # of the correlations between jobs, work and users


class FutureWeeks(NamedTuple):
    """Coming weeks. Rows are sessions of one user and entry; the rows of week i begin at row_at[i]."""

    jobs: Floats  # (week,)
    work: Floats  # (week,)
    slots: Floats  # (week, slot) sessions
    row_at: Ints
    row_entry: Ints
    row_user: Ints  # the user whose hours and habits these are
    row_code: Ints  # the user's code in the job table
    row_sessions: Floats
    new_users: int


def draw_weeks(calendar: SiteCalendar, levels: SiteLevels, weeks: int, rng: np.random.Generator) -> FutureWeeks:
    """One plausible continuation of the calendar."""
    jobs, work, users = levels.draw(weeks, rng)
    habits = _Habits.of(calendar)
    last_active = habits.last_active.tolist()  # by candidate; new users are appended
    donor = list(range(len(calendar.user_code)))
    code = calendar.user_code.tolist()
    newest = max(code) + 1
    settled = calendar.settled()
    rows: list[tuple[int, int, int, float]] = []
    row_at, slots = [0], []
    for week in range(weeks):
        now = calendar.weeks + week
        arriving = int(min(rng.poisson(habits.arrivals), max(round(users[week]), 1)))
        for _ in range(arriving):
            donor.append(int(rng.integers(len(calendar.user_code))))
            code.append(newest)
            last_active.append(now)
            newest += 1
        staying = max(round(users[week]) - arriving, 0 if arriving else 1)
        known = len(donor) - arriving
        absence = np.minimum(now - np.array(last_active[:known]), LONGEST_ABSENCE)
        weight = habits.returns[absence] * habits.share[donor[:known]]
        staying = min(staying, int(np.count_nonzero(weight)))
        active = rng.choice(known, staying, replace=False, p=weight / weight.sum()) if staying else np.empty(0, int)
        for candidate in (*active.tolist(), *range(known, len(donor))):
            last_active[candidate] = now
            begin, end = habits.pick(donor[candidate], now, rng)
            rows += [
                (int(calendar.row_entry[row]), donor[candidate], code[candidate], float(calendar.row_sessions[row]))
                for row in range(begin, end)
            ]
        row_at.append(len(rows))
        slots.append(calendar.slot_sessions[int(rng.integers(settled.start, settled.stop))])
    entry, user, codes, sessions = (np.array(column) for column in zip(*rows, strict=True))
    return FutureWeeks(jobs, work, _without_gaps(np.array(slots, dtype=np.float64)), np.array(row_at), entry, user,
                       codes, sessions.astype(np.float64), newest - max(calendar.user_code.tolist()) - 1)  # fmt: skip


class SiteLevels(NamedTuple):
    """The weekly levels of jobs, work and active users, and how they move together."""

    series: tuple[LevelForecast, LevelForecast, LevelForecast]
    root: Floats  # (3, 3) of the correlations of their shocks
    past_load: Floats  # (week,)
    capacity: float  # work that the machine can do in a week
    one_user: bool

    @classmethod
    def of(cls, calendar: SiteCalendar, capacity: float) -> SiteLevels:
        settled = calendar.settled()
        jobs, work = calendar.slot_jobs.sum(axis=1), calendar.slot_work.sum(axis=1)
        recent = slice(max(settled.start, settled.stop - MOST_WEEKS), settled.stop)
        totals = [values[recent].astype(np.float64) for values in (jobs, work, calendar.users)]
        series = tuple(LevelForecast.calibrated(values) for values in totals)
        root = np.linalg.cholesky(_correlations(totals))
        return cls(series, root, totals[1] / capacity, capacity, len(calendar.user_code) == 1)  # type: ignore[arg-type]

    def draw(self, weeks: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """(week,) jobs, work and active users of coming weeks."""
        shocks, noise = self.root @ rng.standard_normal((3, weeks)), self.root @ rng.standard_normal((3, weeks))
        jobs, work, users = (level.draw(shocks[i], noise[i], rng) for i, level in enumerate(self.series))
        work = self.capacity * hold_back(work / self.capacity, self.past_load)
        return jobs, work, np.ones(weeks) if self.one_user else np.minimum(users, np.maximum(jobs, 1.0))


def hold_back(load: Floats, past: Floats) -> Floats:
    """(week,) the load of coming weeks, reduced where the queue would become longer than in the past.

    Users hold work back from a machine with a long queue, so a load above what the machine can do does not last. The
    queue is a fluid: what a week brings beyond `SUSTAINED` stays for the next.

    >>> hold_back(np.array([1.4, 1.4, 0.5]), np.array([0.9, 1.1, 0.7])).round(2).tolist()
    [1.4, 1.0, 0.5]
    """
    queue = longest = 0.0
    for value in past:
        queue = max(0.0, queue + float(value) - SUSTAINED)
        longest = max(longest, queue)
    longest = LONGER_QUEUE * longest + SPARE_QUEUE / len(past)  # `queue` is what the last week left
    held = np.empty(len(load))
    for week, value in enumerate(load):
        held[week] = min(float(value), max(longest - queue + SUSTAINED, 0.0))
        queue = max(0.0, queue + held[week] - SUSTAINED)
    return held


class _Habits(NamedTuple):
    calendar: SiteCalendar
    returns: Floats  # (absence,) share of users who work in a week, by the weeks since they last did
    arrivals: float  # new users per week
    share: Floats  # (user,) share of weeks in which a user works, since the first
    last_active: Ints  # (user,)
    user_at: Ints  # (user + 1,) into `active_week` and `active_rows`
    active_week: Ints
    active_rows: Ints  # (user-week, 2) rows of the calendar

    @classmethod
    def of(cls, calendar: SiteCalendar) -> _Habits:
        pair = calendar.row_week * (len(calendar.user_code) + 1) + calendar.row_user
        begins = np.flatnonzero(np.append(True, np.diff(pair) != 0))
        ends = np.append(begins[1:], len(pair))
        week, user = calendar.row_week[begins], calendar.row_user[begins]
        order = np.lexsort((week, user))
        week, user, rows = week[order], user[order], np.column_stack([begins, ends])[order]
        user_at = np.searchsorted(user, np.arange(len(calendar.user_code) + 1))
        first, last = week[user_at[:-1]], week[user_at[1:] - 1]
        active_weeks = np.diff(user_at)
        share = (active_weeks + 1.0) / (calendar.weeks - first + 2.0)
        later = np.flatnonzero(first >= calendar.weeks // 2)
        new = len(later) if calendar.weeks > 1 else 0
        arrivals = new / max(calendar.weeks - calendar.weeks // 2, 1)
        return cls(calendar, _return_shares(week, user, calendar.weeks), arrivals, share, last, user_at, week, rows)

    def pick(self, user: int, now: int, rng: np.random.Generator) -> tuple[int, int]:
        """The rows of one past week of a user."""
        low, high = int(self.user_at[user]), int(self.user_at[user + 1])
        weight = np.exp((self.active_week[low:high] - self.active_week[high - 1]) / RECENT_WEEKS)
        chosen = low + int(np.searchsorted(np.cumsum(weight), rng.random() * weight.sum()))
        begin, end = self.active_rows[min(chosen, high - 1)]
        return int(begin), int(end)


def _return_shares(week: Ints, user: Ints, weeks: int) -> Floats:
    """(absence,) hits over chances, with one hit and a few misses before the log is read."""
    same = np.diff(user) == 0
    absence = np.minimum(np.diff(week)[same], LONGEST_ABSENCE)
    hits = np.bincount(absence, minlength=LONGEST_ABSENCE + 1) + 0.1
    last = np.append(~same, True)
    unfinished = np.minimum(weeks - 1 - week[last], LONGEST_ABSENCE)
    ended = hits + np.bincount(unfinished, minlength=LONGEST_ABSENCE + 1)
    chances = np.cumsum(ended[::-1])[::-1] + 1.0
    return hits / chances


def _correlations(totals: list[Floats]) -> Floats:
    """(3, 3) of the changes from week to week, shrunk towards independence."""
    changes = np.array([np.diff(without_outages(values)[0]) for values in totals])
    if changes.shape[1] < 4:
        return np.eye(3)
    spread = changes.std(axis=1)
    scaled = (changes - changes.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)[:, None]
    found = SHRUNK * scaled @ scaled.T / changes.shape[1]
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def _without_gaps(slots: Floats) -> Floats:
    """A week without any session would have no place for one."""
    return np.where(slots.sum(axis=1, keepdims=True) > 0, slots, 1.0)
