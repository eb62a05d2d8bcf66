"""Released statistics -> sessions of synthetic users, day by day.

A session has a kind (groups of size, limit and number of jobs), then fine classes within the groups, and a used share
of the limit. The next job of a session repeats the last one, or its size and limit, or is drawn anew. Sessions are kept
so often that their work is distributed as released. They begin at random in the hours of the released profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import HOUR_S
from clustertwin.workload.generators.private import public_grid as grids
from clustertwin.workload.generators.private.public_grid import PublicGrid
from clustertwin.workload.generators.private.released_statistics import STATUSES, ReleasedStatistics

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PILOT_SESSIONS = 20_000
MOST_RAISED = 4.0  # how much more often than proposed a class of work may be drawn
LEAST_ACCEPTED = 0.05
LONGEST_S = 4 * HOUR_S  # of a session, as `session_starts` cuts them
EVEN_SIZES, LARGE_SIZE = 0.5, 1 / 16  # the share of large jobs with the size of their class; and which are large
RUN_SPREAD = 1.0  # standard deviation of the logarithm of run times within a session, where they differ
REPEATED_SPREAD = 0.05  # the same where they are similar


@dataclass(frozen=True, slots=True)
class DrawnJobs:
    """(job,) columns, in the order of sessions."""

    size: Ints
    limit_s: Floats  # -1 without limits
    run_s: Floats
    status: Ints

    @property
    def work(self) -> Floats:
        return np.asarray(self.size * self.run_s)


@dataclass(frozen=True, slots=True)
class SessionSampler:
    """What sampling needs, computed once from the released statistics."""

    grid: PublicGrid
    released: ReleasedStatistics
    user_share: Floats  # (user,) cumulated
    accepted: Floats  # (work class,) the share of drawn sessions that is kept, to reach the released work of sessions
    session_jobs: float = 1.0  # mean jobs of a session
    session_work: float = 1.0  # mean processor seconds of a session

    @classmethod
    def of(cls, released: ReleasedStatistics, grid: PublicGrid) -> SessionSampler:
        draft = cls(grid, released, _users(released.activity), np.ones(len(grids.WORK_EDGES)))
        pilot = np.random.default_rng(0)  # its seed belongs to the model
        length, jobs = draft._proposed(PILOT_SESSIONS, pilot)
        drawn = np.bincount(draft._work_class(length, jobs), minlength=len(grids.WORK_EDGES)) / PILOT_SESSIONS
        ratio = np.minimum(released.classes["work"] / np.maximum(drawn, 1e-9), MOST_RAISED) * (drawn > 0)
        accepted = ratio / ratio.max() if ratio.any() else np.ones(len(ratio))
        # Noise may leave only classes that are hardly ever proposed; then the proposals stay as they are.
        draft = replace(draft, accepted=accepted if float(drawn @ accepted) > LEAST_ACCEPTED else np.ones(len(ratio)))
        length, jobs = draft.sessions(PILOT_SESSIONS, pilot)
        return replace(draft, session_jobs=float(length.mean()), session_work=float(jobs.work.sum() / len(length)))

    def day(self, work: float, weekend: bool, rng: np.random.Generator) -> tuple[Floats, Ints, DrawnJobs]:
        """Sessions of one day, until they hold this much work: (job,) seconds since midnight, users and jobs."""
        length, jobs = self._sessions_of(work, rng)
        sessions = len(length)
        hour = _pick(self.released.hour[int(weekend)], rng.random(sessions))
        begin_s = HOUR_S * (hour + rng.random(sessions))
        gap = _pick(self.released.gap, rng.random(int(length.sum())))
        gap_s = np.where(gap == 0, 0.0, 2.0 ** (gap - 1 + rng.random(len(gap))))
        first = np.cumsum(length) - length
        gap_s[first] = 0.0
        longest_s = np.add.reduceat(gap_s, first)
        gap_s *= np.repeat(np.minimum(1.0, LONGEST_S / np.maximum(longest_s, 1.0)), length)
        elapsed_s = np.cumsum(gap_s)
        at_s = np.repeat(begin_s - elapsed_s[first], length) + elapsed_s
        user = np.minimum(np.searchsorted(self.user_share, rng.random(sessions)), len(self.user_share) - 1)
        return np.round(at_s), np.repeat(user, length), jobs

    def _sessions_of(self, work: float, rng: np.random.Generator) -> tuple[Ints, DrawnJobs]:
        """Sessions in random order, up to the one that reaches the work."""
        lengths: list[Ints] = []
        drawn: list[DrawnJobs] = []
        done = 0.0
        while done < work:
            length, jobs = self.sessions(int(1.1 * (work - done) / self.session_work) + 5, rng)
            ends = np.cumsum(length)
            reached = done + np.cumsum(jobs.work)[ends - 1]
            count = min(int(np.searchsorted(reached, work)) + 1, len(length))
            lengths.append(length[:count])
            drawn.append(_part(jobs, slice(0, int(ends[count - 1]))))
            done = float(reached[count - 1])
        return np.concatenate(lengths), _joined(drawn)

    def sessions(self, count: int, rng: np.random.Generator) -> tuple[Ints, DrawnJobs]:
        """At least one session, about `count`: (session,) numbers of jobs, and the jobs."""
        while True:
            length, jobs = self._proposed(count, rng)
            kept = rng.random(len(length)) < self.accepted[self._work_class(length, jobs)]
            if kept.any():
                return length[kept], _part(jobs, np.repeat(kept, length))

    def _work_class(self, length: Ints, jobs: DrawnJobs) -> Ints:
        work = np.add.reduceat(jobs.work, np.cumsum(length) - length) / (self.grid.machine * HOUR_S)
        return grids.edge_class(work, grids.WORK_EDGES)

    def _proposed(self, count: int, rng: np.random.Generator) -> tuple[Ints, DrawnJobs]:
        """(session,) numbers of jobs, and the jobs, by kind."""
        kind = np.unravel_index(_pick(self.released.kind.ravel(), rng.random(count)), grids.KINDS)
        size_class = _pick_in_group(self.released.classes["size"], self.grid.size_group, kind[0], rng)
        limit_class = _pick_in_group(self.released.classes["limit"], grids.LIMIT_GROUP, kind[1], rng)
        length_class = _pick_in_group(self.released.classes["length"], grids.LENGTH_GROUP, kind[2], rng)
        length = np.floor(2.0 ** (length_class + rng.random(count))).astype(np.int64)
        n, first = int(length.sum()), np.cumsum(length) - length
        session = np.repeat(np.arange(count), length)
        repeats = _pick(self.released.repetition, rng.random(n))
        repeats[first] = 0
        shape = np.maximum.accumulate(np.where(repeats == 0, np.arange(n), 0))  # the job that a job repeats
        run = np.maximum.accumulate(np.where(repeats <= 1, np.arange(n), 0))
        classes = self.released.classes
        size = self._sizes(
            _varied(size_class[session], shape, first, classes["size"], rng), rng.random((2, n))[:, shape]
        )
        limit_s = grids.LIMITS_S[_varied(limit_class[session], shape, first, classes["limit"], rng)]
        spread = RUN_SPREAD * rng.normal(size=n)
        spread[first] = 0.0
        factor = np.exp(spread[run] + REPEATED_SPREAD * rng.normal(size=n))
        if not self.grid.with_limits:
            run_s = np.clip(limit_s * np.exp(rng.uniform(-0.3, 0.3, count))[session] * factor, 1.0, grids.LIMITS_S[-1])
            limit_s, over = np.full(n, -1.0), np.zeros(n, dtype=bool)
        else:
            ratio = self._ratios(kind[1], rng)
            over = (ratio == len(grids.RATIO_EDGES) - 1)[session]
            used = _within((*grids.RATIO_EDGES, 1.0), ratio, rng.random(count))[session]
            run_s = np.where(over, limit_s, limit_s * np.minimum(used * factor, 0.99))
        chosen = rng.random(n)
        status = np.where(over, _pick(self.released.status[1], chosen), _pick(self.released.status[0], chosen))
        codes = np.array([int(status) for status in STATUSES])
        return length, DrawnJobs(size, limit_s, np.maximum(np.round(run_s), 1.0), codes[status])

    def _sizes(self, cell: Ints, uniform: Floats) -> Ints:
        """(job,) sizes. Half of the large ones lie anywhere in their class: equal sizes do not fill a machine."""
        sizes = self.grid.sizes.astype(np.float64)
        middles = np.sqrt(sizes[1:] * sizes[:-1])
        low, high = np.append(1.0, middles)[cell], np.append(middles, sizes[-1])[cell]
        even = (uniform[0] < EVEN_SIZES) | (sizes[cell] < LARGE_SIZE * sizes[-1]) | (not self.grid.fine_sizes)
        anywhere = np.clip(np.round(low * (high / low) ** uniform[1]), 1, sizes[-1])
        return np.where(even, sizes[cell], anywhere).astype(np.int64)

    def _ratios(self, limit_group: Ints, rng: np.random.Generator) -> Ints:
        """(session,) the class of the used share of the limit."""
        cell, uniform = np.zeros(len(limit_group), dtype=np.int64), rng.random(len(limit_group))
        for group in np.unique(limit_group):
            mine = limit_group == group
            cell[mine] = _pick(self.released.ratio[group], uniform[mine])
        return cell


def _varied(cell: Ints, shape: Ints, first: Ints, weights: Floats, rng: np.random.Generator) -> Ints:
    """(job,) the class of the session; a job that is not like the one before may be one class lower or higher.

    A class without weight, such as a limit beyond the longest of the site, is not entered.
    """
    step = rng.integers(-1, 2, len(cell))
    step[first] = 0
    other = np.clip(cell + step[shape], 0, len(weights) - 1)
    return np.where(weights[other] > 0, other, cell)


def _pick_in_group(weights: Floats, group: Ints, wanted: Ints, rng: np.random.Generator) -> Ints:
    """A class of the wanted group for each session, by weight; any class of the group if none has weight."""
    cell, uniform = np.zeros(len(wanted), dtype=np.int64), rng.random(len(wanted))
    for each in np.unique(wanted):
        members = np.flatnonzero(group == each)
        if not len(members):  # a small machine has no such size
            members = np.array([np.argmin(np.abs(group - each))])
        mine, inside = wanted == each, weights[members]
        cell[mine] = members[_pick(inside if inside.any() else np.ones(len(members)), uniform[mine])]
    return cell


def _part(jobs: DrawnJobs, which: slice | NDArray[np.bool_]) -> DrawnJobs:
    return DrawnJobs(jobs.size[which], jobs.limit_s[which], jobs.run_s[which], jobs.status[which])


def _joined(parts: Sequence[DrawnJobs]) -> DrawnJobs:
    if len(parts) == 1:
        return parts[0]
    return DrawnJobs(*(np.concatenate([getattr(part, name) for part in parts])
                       for name in DrawnJobs.__dataclass_fields__))  # fmt: skip


def _within(edges: Sequence[float], cell: Ints, place: Floats) -> Floats:
    """A value in each class, log-uniform: `place` 0 is the lower edge, 1 the upper."""
    low, high = np.array(edges)[cell], np.array(edges)[cell + 1]
    return np.asarray(low * (high / low) ** place)


def _users(activity: Floats) -> Floats:
    """(user,) cumulated shares of the sessions: as many users in each class as the noisy counts say, spread evenly."""
    counts = np.round(np.maximum(activity, 0)).astype(np.int64)
    if not counts.any():
        counts[0] = 1
    cell = np.repeat(np.arange(len(counts)), counts)
    place = np.concatenate([(np.arange(count) + 0.5) / count for count in counts if count])
    weight = 2.0 ** (cell + place)
    return np.asarray(np.cumsum(weight) / weight.sum())


def _pick(weights: Floats, uniform: Floats) -> Ints:
    """The class of each uniform number, where a class has this weight."""
    cumulative = np.cumsum(weights) / np.sum(weights)
    last = int(np.flatnonzero(weights)[-1])
    return np.minimum(np.searchsorted(cumulative, uniform, side="right"), last).astype(np.int64)
