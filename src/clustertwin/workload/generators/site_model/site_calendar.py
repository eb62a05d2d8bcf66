"""The calendar of a site: which users worked in which week, on which days and at which hours, and how much.

Weeks count back from the last submission. The calendar holds counts of sessions by week, user and entry (see
`session_fit`), never a job.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

HOUR_S, DAY_S, WEEK_S = 3600.0, 86400.0, 7 * 86400.0
HOURS = 168
#: A user's own hours count as much as the site's after this many sessions.
OWN_HOURS_SESSIONS = 40
LEAST_ACTIVE = 0.1  # an early week with a smaller share of the median week is before the site's time


class SiteCalendar(NamedTuple):
    """Weeks of a log. Rows are (week, user, entry) with a number of sessions, sorted by week and user."""

    start_s: Floats  # (1,) beginning of the first week
    row_week: Ints
    row_user: Ints  # index of the user
    row_entry: Ints
    row_sessions: Ints
    user_code: Ints  # (user,)
    user_tide: Ints  # (user,) row of `tide`
    tide: Floats32  # (row, hour of the week) shares
    day_sessions: Ints  # (week, 7)
    day_work: Floats32  # (week, 7) size times run time of the jobs submitted
    day_jobs: Ints  # (week, 7)
    users: Ints  # (week,) active users

    @classmethod
    def of(cls, session_s: Floats, session_user: Ints, session_entry: Ints, jobs: SubmittedWork) -> SiteCalendar:
        """`session_*`: start, user and entry of each session."""
        end_s = float(jobs.submit_s.max()) + 1.0
        weeks = max(1, int(np.ceil((end_s - float(jobs.submit_s.min())) / WEEK_S)))
        start_s = end_s - weeks * WEEK_S
        codes, user = np.unique(session_user, return_inverse=True)
        week = ((session_s - start_s) // WEEK_S).astype(np.int64)
        rows, counts = np.unique(np.column_stack([week, user.ravel(), session_entry]), axis=0, return_counts=True)
        tide, user_tide = _tides(((session_s - start_s) % WEEK_S // HOUR_S).astype(np.int64), user.ravel(), len(codes))
        day = ((jobs.submit_s - start_s) // DAY_S).astype(np.int64)
        session_day = ((session_s - start_s) // DAY_S).astype(np.int64)
        active = np.unique(np.column_stack([day // 7, jobs.user]), axis=0)[:, 0]
        return cls(
            np.array([start_s]), rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy(), counts, codes, user_tide, tide,
            np.bincount(session_day, minlength=7 * weeks).reshape(weeks, 7),
            np.bincount(day, jobs.work, 7 * weeks).reshape(weeks, 7).astype(np.float32),
            np.bincount(day, minlength=7 * weeks).reshape(weeks, 7), np.bincount(active, minlength=weeks),
        )  # fmt: skip

    @property
    def weeks(self) -> int:
        return len(self.users)

    @property
    def end_s(self) -> float:
        return float(self.start_s[0]) + self.weeks * WEEK_S

    @property
    def first_s(self) -> float:
        """The beginning of the first day with a submission."""
        return float(self.start_s[0]) + DAY_S * int(np.flatnonzero(self.day_jobs.ravel())[0])

    def settled(self) -> slice:
        """The weeks from which the level is learnt: without a partial first week and a start-up of few jobs."""
        jobs = self.day_jobs.sum(axis=1)
        active = np.flatnonzero(jobs >= LEAST_ACTIVE * np.median(jobs[jobs > 0]))
        first = int(active[0]) if len(active) else 0
        if first == 0 and self.weeks > 2 and self.first_s >= float(self.start_s[0]) + DAY_S:
            first = 1
        return slice(first, self.weeks)

    def day_liking(self, user: Ints) -> Floats:
        """(session, 7) how much each user favours a day over the site."""
        shares = self.tide.reshape(-1, 7, 24).sum(axis=2)
        return (shares / np.maximum(shares[0], 1e-6))[self.user_tide[user]]

    def hours(self, user: Ints, day: Ints, uniform: Floats) -> Floats:
        """(session,) seconds into the week, on the given day and at the hours of each user."""
        row = self.user_tide[user]
        groups, group = np.unique(row * 7 + day, return_inverse=True)
        edges = np.arange(25) * HOUR_S
        seconds = np.empty(len(user))
        for i, code in enumerate(groups):
            chosen = group.ravel() == i
            share = np.append(0.0, np.cumsum(self.tide[code // 7, 24 * (code % 7) : 24 * (code % 7 + 1)]))
            seconds[chosen] = np.interp(uniform[chosen] * share[-1], share, edges) + DAY_S * (code % 7)
        return seconds


class SubmittedWork(NamedTuple):
    """The jobs of a log, as far as a calendar counts them."""

    submit_s: Floats
    user: Ints
    work: Floats


def _tides(hour: Ints, user: Ints, users: int) -> tuple[Floats32, Ints]:
    """Hours of the week: the site's in row 0, then those of the users with enough sessions."""
    site = np.bincount(hour, minlength=HOURS) + 0.5 / HOURS
    site = site / site.sum()
    counts = np.bincount(user, minlength=users)
    own = np.flatnonzero(counts >= OWN_HOURS_SESSIONS)
    rows, row_of = [site], np.zeros(users, dtype=np.int64)
    for i in own:
        seen = np.bincount(hour[user == i], minlength=HOURS)
        row_of[i] = len(rows)
        rows.append((seen + OWN_HOURS_SESSIONS * site) / (counts[i] + OWN_HOURS_SESSIONS))
    return np.array(rows, dtype=np.float32), row_of
