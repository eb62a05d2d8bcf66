"""The calendar of a site: which users worked in which week, on which days and at which hours, and how much.

Weeks count back from the last submission. The calendar holds counts of sessions by week, user and entry (see
`session_fit`), never a job.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S, HOUR_S, WEEK_S

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

HOURS = 168
SLOT_HOURS = 24  # sessions and work of a week are counted in slots of this many hours
SLOTS, SLOT_S = HOURS // SLOT_HOURS, SLOT_HOURS * HOUR_S
#: A user's own hours count as much as the site's after this many sessions.
OWN_HOURS_SESSIONS = 40
LEAST_ACTIVE = 0.1  # an early week with a smaller share of the usual week is before the site's time
LEAST_LAST_WEEKS = 4  # of the end of a log that say what is usual


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
    slot_sessions: Ints  # (week, slot)
    slot_work: Floats32  # (week, slot) size times run time of the jobs submitted
    slot_jobs: Ints  # (week, slot)
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
        slot = ((jobs.submit_s - start_s) // SLOT_S).astype(np.int64)
        session_slot = ((session_s - start_s) // SLOT_S).astype(np.int64)
        active = np.unique(np.column_stack([slot // SLOTS, jobs.user]), axis=0)[:, 0]
        return cls(
            np.array([start_s]), rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy(), counts, codes,
            user_tide, tide,
            np.bincount(session_slot, minlength=SLOTS * weeks).reshape(weeks, SLOTS),
            np.bincount(slot, jobs.work, SLOTS * weeks).reshape(weeks, SLOTS).astype(np.float32),
            np.bincount(slot, minlength=SLOTS * weeks).reshape(weeks, SLOTS), np.bincount(active, minlength=weeks),
        )  # fmt: skip

    @property
    def weeks(self) -> int:
        return len(self.users)

    @property
    def end_s(self) -> float:
        return float(self.start_s[0]) + self.weeks * WEEK_S

    @property
    def first_s(self) -> float:
        """The beginning of the first slot with a submission, or the log's time zero in it."""
        return max(float(self.start_s[0]) + SLOT_S * int(np.flatnonzero(self.slot_jobs.ravel())[0]), 0.0)

    def settled(self) -> slice:
        """The weeks from which the level is learnt: without a partial first week and a start-up of few jobs."""
        jobs = self.slot_jobs.sum(axis=1)
        # If more than half of the weeks are almost empty, so is the median week; the last weeks are not.
        last = jobs[-max(len(jobs) // 4, LEAST_LAST_WEEKS) :]
        usual = max(float(np.median(part[part > 0])) for part in (jobs, last))
        active = np.flatnonzero(jobs >= LEAST_ACTIVE * usual)
        first = int(active[0]) if len(active) else 0
        if first == 0 and self.weeks > 2 and self.first_s >= float(self.start_s[0]) + DAY_S:
            first = 1
        return slice(first, self.weeks)

    def liking(self, user: Ints) -> Floats:
        """(session, slot) how much each user favours a slot over the site."""
        shares = self.tide.reshape(-1, SLOTS, SLOT_HOURS).sum(axis=2)
        return (shares / np.maximum(shares[0], 1e-6))[self.user_tide[user]]

    def seconds(self, user: Ints, slot: Ints, uniform: Floats) -> Floats:
        """(session,) seconds into the week, in the given slot and at the hours of each user."""
        groups, group = np.unique(self.user_tide[user] * SLOTS + slot, return_inverse=True)
        # (group, SLOT_HOURS + 1) cumulative shares of the hours of each slot
        share = self.tide.reshape(-1, SLOT_HOURS)[groups].cumsum(axis=1)
        share = np.column_stack([np.zeros(len(groups)), share / share[:, -1:]])[group.ravel()]
        hour = np.minimum((uniform[:, None] >= share[:, 1:]).sum(axis=1), SLOT_HOURS - 1)
        each = np.arange(len(hour))
        part = (uniform - share[each, hour]) / np.maximum(share[each, hour + 1] - share[each, hour], 1e-9)
        return slot * SLOT_S + (hour + np.clip(part, 0.0, 1.0)) * HOUR_S


class SubmittedWork(NamedTuple):
    """The jobs of a log, as far as a calendar counts them."""

    submit_s: Floats
    user: Ints
    work: Floats


def _tides(hour: Ints, user: Ints, users: int) -> tuple[Floats32, Ints]:
    """Hours of the week: the site's in row 0, then those of the users with enough sessions."""
    site = np.bincount(hour, minlength=HOURS) + 0.1
    site = site / site.sum()
    counts = np.bincount(user, minlength=users)
    own = np.flatnonzero(counts >= OWN_HOURS_SESSIONS)
    rows, row_of = [site], np.zeros(users, dtype=np.int64)
    for i in own:
        seen = np.bincount(hour[user == i], minlength=HOURS)
        row_of[i] = len(rows)
        rows.append((seen + OWN_HOURS_SESSIONS * site) / (counts[i] + OWN_HOURS_SESSIONS))
    return np.array(rows, dtype=np.float32), row_of
