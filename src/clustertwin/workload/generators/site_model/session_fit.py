"""A log -> what users do in a session: the first job, the next one, pauses and run times, given user and history.

The jobs of a user are cut into phases of about `PHASE_JOBS` jobs, because what a user does changes over months; a
user's phase is a *profile*. Sessions of similar length behave alike: the powers of two are *classes*, and a profile
and a class are an *entry*. What a profile has too few jobs to say, the user's other phases or the whole site say.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.generators.site_model.session_walk import SessionTables

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

PHASE_JOBS = 200
QUANTILES = 33
LEAST_GROUP = 20  # jobs in a table of run times or pauses
PRIOR_JOBS = 3.0  # weight of a table against the few jobs of a state
LONG_CLASS = 3  # sessions of eight jobs and more have transitions of their own


class CutLog(NamedTuple):
    """A log sorted by user and time, cut into sessions and phases."""

    order: Ints  # places in the log
    session: Ints  # (job,) number of its session
    profile: Ints  # (job,)
    profile_user: Ints  # (profile,) user code
    length_class: Ints  # (session,)


class _Scores(NamedTuple):
    """Values as normal scores in tables."""

    row: Ints  # (group,) the table of each group
    depth: Ints  # (group,) the level of that table
    table: Floats32  # (row, QUANTILES)
    score: Floats  # (value,)


def phases(user: Ints) -> Ints:
    """(job,) numbers of profiles. The jobs are sorted by user, then by time.

    >>> np.bincount(phases(np.array([1] * 500 + [2] * 3))).tolist()
    [250, 250, 3]
    """
    begins = np.flatnonzero(np.append(True, np.diff(user) != 0))
    counts = np.diff(np.append(begins, len(user)))
    parts = np.maximum(np.round(counts / PHASE_JOBS).astype(np.int64), 1)
    within = np.arange(len(user)) - np.repeat(begins, counts)
    part = within * np.repeat(parts, counts) // np.repeat(counts, counts)
    return part + np.repeat(np.cumsum(parts) - parts, counts)


def length_classes(lengths: Ints) -> Ints:
    """The power of two below each length.

    >>> length_classes(np.array([1, 2, 3, 4, 500])).tolist()
    [0, 1, 1, 2, 8]
    """
    return np.floor(np.log2(lengths) + 1e-9).astype(np.int64)


class SortedJobs(NamedTuple):
    """Columns of a log, sorted as its `CutLog` is."""

    kind: Ints
    excess_s: Floats  # run time; for a job that reached its limit, the time after it
    limit_s: Floats  # -1: unknown
    gap_s: Floats  # since the previous job
    over: Ints  # 0, or a code of how a job ended that reached its limit


def fit_sessions(cut: CutLog, jobs: SortedJobs) -> tuple[SessionTables, Ints]:
    """The tables, and the entry of each session."""
    kind, over, gap_s = jobs.kind, jobs.over, jobs.gap_s
    long = (cut.length_class[cut.session] >= LONG_CLASS).astype(np.int64)
    states, state = _codes(cut.profile, kind, long)
    user = cut.profile_user[cut.profile]
    # Time past a limit depends on the site, not on the user.
    coarse = _codes(user * (over == 0), over)[1]
    levels = (state, _codes(user, kind, over)[1], _codes(user, np.where(over == 0, long, 2), over)[1], coarse, over)
    # Jobs of one kind share a limit; tables of several kinds hold run times over limits.
    offset = np.where((over == 0) & (jobs.limit_s > 0), np.log1p(np.maximum(jobs.limit_s, 0.0)), 0.0)
    logs = np.log1p(jobs.excess_s)
    runs = _normal_scores((logs, logs, logs - offset), levels)
    state_offset = np.zeros(len(states), dtype=np.float32)
    state_offset[state] = np.where(runs.depth[state] >= 2, offset, 0.0)
    first = np.append(True, np.diff(cut.session) != 0)
    length_class = cut.length_class[cut.session]
    entries, entry = _codes(cut.profile, length_class)
    inner = ~first
    if inner.any():
        by_class = (entry[inner], _codes(user, length_class)[1][inner], length_class[inner], 0 * entry[inner])
        gaps = _normal_scores((np.log1p(gap_s[inner]),), by_class, len(entries))
    else:
        none = np.zeros(len(entries), dtype=np.int64)
        gaps = _Scores(none, none, np.zeros((1, QUANTILES), dtype=np.float32), np.empty(0))
    run_mean, run_spread = _shrunk(runs.score, state, len(states))
    gap_mean, gap_spread = _shrunk(gaps.score, entry[inner], len(entries))
    z = (runs.score - run_mean[state]) / run_spread[state]
    pause = (gaps.score - gap_mean[entry[inner]]) / gap_spread[entry[inner]]
    repeated = inner & np.append(False, np.diff(state) == 0)
    later = inner[1:] & inner[:-1]  # a pause after a pause of the same session
    place = np.cumsum(inner) - 1
    memory = (
        _correlation(z[np.flatnonzero(repeated) - 1], z[repeated]),
        _correlation(pause[place[:-1][later]], pause[place[1:][later]]),
    )
    usual = _most_frequent(state, _codes(states[:, 0], states[:, 2])[1])
    next_at, next_state, next_share = _transitions(state[:-1][inner[1:]], state[1:][inner[1:]], usual)
    entry_at, entry_state, entry_share = _transitions(entry[first], state[first], np.arange(len(entries)))
    tables = SessionTables(
        states[:, 1].copy(), runs.row, run_mean, run_spread, state_offset, next_at, next_state, next_share,
        entry_at, entry_state, entry_share, gaps.row, gap_mean, gap_spread, runs.table, gaps.table,
        np.array(memory, dtype=np.float32),
    )  # fmt: skip
    return tables, entry[first]


def _codes(*columns: Ints) -> tuple[Ints, Ints]:
    """Distinct rows, and the number of each row."""
    distinct, index = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    return distinct, index.ravel()


def _normal_scores(columns: Sequence[Floats], levels: Sequence[Ints], groups: int | None = None) -> _Scores:
    """Tables of the finest level with enough values; `levels[0]` numbers the groups.

    Level i takes its values from column i, or from the last one.
    """
    groups = groups or int(levels[0].max()) + 1
    row, depth_of = np.full(groups, -1, dtype=np.int64), np.zeros(groups, dtype=np.int64)
    tables: list[Floats] = []
    score = np.empty(len(levels[0]))
    waiting = np.ones(len(levels[0]), dtype=bool)
    for depth, level in enumerate(levels):
        values = columns[min(depth, len(columns) - 1)]
        last = depth == len(levels) - 1
        by_code = np.argsort(level, kind="stable")
        ends = np.cumsum(np.bincount(level))
        for end, count in zip(ends, np.bincount(level), strict=True):
            members = by_code[end - count : end]
            assigned = members[waiting[members]]
            if not len(assigned) or (count < LEAST_GROUP and not last):
                continue
            ordered = np.sort(values[members])
            low, high = np.searchsorted(ordered, values[assigned]), np.searchsorted(ordered, values[assigned], "right")
            score[assigned] = _normal_quantile((low + high) / 2 / len(ordered))
            row[levels[0][assigned]] = len(tables)
            depth_of[levels[0][assigned]] = depth
            tables.append(np.quantile(ordered, np.linspace(0, 1, QUANTILES)))
            waiting[assigned] = False
    row[row < 0] = len(tables) - 1  # an entry without pauses: a session of one job
    return _Scores(row, depth_of, np.array(tables, dtype=np.float32), score)


def _shrunk(score: Floats, group: Ints, groups: int) -> tuple[Floats32, Floats32]:
    """Mean and standard deviation of the scores of each group, drawn towards 0 and 1."""
    counts = np.bincount(group, minlength=groups) + PRIOR_JOBS
    mean = np.bincount(group, score, groups) / counts
    squares = np.bincount(group, (score - mean[group]) ** 2, groups) + PRIOR_JOBS
    return mean.astype(np.float32), np.sqrt(squares / counts).astype(np.float32)


def _most_frequent(state: Ints, group: Ints) -> Ints:
    """(state,) the most frequent state among those of the same group."""
    counts = np.bincount(state, minlength=len(group))
    order = np.lexsort((counts, group))
    last = np.append(np.diff(group[order]) != 0, True)
    winner = np.empty(int(group.max()) + 1, dtype=np.int64)
    winner[group[order[last]]] = order[last]
    return winner[group]


def _transitions(before: Ints, after: Ints, otherwise: Ints) -> tuple[Ints, Ints, Floats32]:
    """Lists of what follows, with cumulative shares. `otherwise` (state,) follows where nothing ever did."""
    count = len(otherwise)
    alone = np.setdiff1d(np.arange(count), before)
    pairs, frequency = np.unique(
        np.column_stack([np.append(before, alone), np.append(after, otherwise[alone])]), axis=0, return_counts=True
    )
    at = np.searchsorted(pairs[:, 0], np.arange(count + 1))
    total = np.cumsum(frequency)
    base = np.append(0, total)[at[:-1]]
    counts = np.append(0, total)[at[1:]] - base
    share = (total - base[pairs[:, 0]]) / counts[pairs[:, 0]]
    return at, pairs[:, 1].copy(), share.astype(np.float32)


def _correlation(before: Floats, after: Floats) -> float:
    if len(before) < LEAST_GROUP or before.std() == 0 or after.std() == 0:
        return 0.0
    return float(np.clip(np.corrcoef(before, after)[0, 1], 0.0, 0.98))


def _normal_quantile(share: Floats) -> Floats:
    """The normal score of a share of ranks, by interpolation; shares below 1 in 2,000 count as that."""
    return np.interp(share, _SHARES, _SCORES)


_SHARES = np.linspace(0.0005, 0.9995, 2000)
_SCORES = np.array([NormalDist().inv_cdf(share) for share in _SHARES])
