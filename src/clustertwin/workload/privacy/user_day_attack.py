"""Did this user work on that day? The jobs of a published log on each day -> how well they answer the question.

True claims are the days on which a user submitted, false claims the other days of the log. Only days of the same user
and the same weekday are compared; in a log of less than three weeks, all days of the same user. The attacker knows the
sizes and limits that a user tends to ask for, and looks for such jobs on the day, or looks for the user's name. The
better of the two counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.privacy.attack_score import AttackScore, score_claims, stronger
from clustertwin.workload.privacy.attacked_log import AttackedLog

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_USERS = 200
MOST_SHAPES = 2_000
LEAST_DAYS = 3
DAYS_AT_ONCE = 2_048  # bounds the table of shapes and days of a log of decades
WEEKDAY_DAYS = 21  # a shorter log has too few days of the same weekday to compare


def user_day_attack(real: AttackedLog, published: AttackedLog, users: Ints | None = None) -> AttackScore:
    """The attack on these users, by default on the busiest."""
    users = busiest(real.user) if users is None else users
    first, last = int(real.day.min()), int(real.day.max())
    days = last - first + 1
    if not len(users) or days < LEAST_DAYS:
        return AttackScore()
    worked = _table(real, users, first, days) > 0  # (user, day)
    weekday = np.arange(days) % 7 if days >= WEEKDAY_DAYS else np.zeros(days, dtype=np.int64)
    chosen = weekday[None, :] + 7 * np.arange(len(users))[:, None]
    inside = published.take((published.day >= first) & (published.day <= last))
    by_name = _table(inside, users, first, days)
    by_content = _resemblance(real, inside, users, first, days)
    return stronger(*(score_claims(scores.ravel(), worked.ravel(), chosen.ravel()) for scores in (by_name, by_content)))


def busiest(user: Ints) -> Ints:
    """The users with most jobs, unknown ones excluded."""
    codes, counts = np.unique(user[user >= 0], return_counts=True)
    return np.sort(codes[np.argsort(-counts, kind="stable")[:MOST_USERS]])


def _table(log: AttackedLog, users: Ints, first: int, days: int) -> Floats:
    """(user, day) the number of jobs."""
    known = np.isin(log.user, users)
    cell = np.searchsorted(users, log.user[known]) * days + log.day[known] - first
    return np.bincount(cell, minlength=len(users) * days).reshape(len(users), days).astype(np.float64)


def _resemblance(real: AttackedLog, published: AttackedLog, users: Ints, first: int, days: int) -> Floats:
    """(user, day) how many published jobs look like those of the user, each weighted by how typical its shape is."""
    shapes, counts = np.unique(real.shape, return_counts=True)
    shapes = np.sort(shapes[np.argsort(-counts, kind="stable")[:MOST_SHAPES]])
    of_users = real.take(np.isin(real.user, users) & np.isin(real.shape, shapes))
    cell = np.searchsorted(users, of_users.user) * len(shapes) + np.searchsorted(shapes, of_users.shape)
    profile = np.bincount(cell, minlength=len(users) * len(shapes)).reshape(len(users), len(shapes)).astype(float)
    share = profile / np.maximum(profile.sum(axis=1, keepdims=True), 1)
    usual = profile.sum(axis=0) / max(profile.sum(), 1)
    lift = share / np.maximum(usual, 1e-12)  # (user, shape)
    seen = published.take(np.isin(published.shape, shapes))
    shape, day = np.searchsorted(shapes, seen.shape), seen.day - first
    scores = []
    for begin in range(0, days, DAYS_AT_ONCE):
        count = min(DAYS_AT_ONCE, days - begin)
        inside = (day >= begin) & (day < begin + count)
        cell = shape[inside] * count + day[inside] - begin
        on_day = np.bincount(cell, minlength=len(shapes) * count).reshape(len(shapes), count)
        scores.append(lift @ np.log1p(on_day))
    return np.concatenate(scores, axis=1)
