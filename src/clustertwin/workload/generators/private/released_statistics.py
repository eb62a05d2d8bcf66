"""A log -> what is released about it under differential privacy. Nothing else of the log reaches the model.

The queries, and what they are for:

- `activity`: users by their number of sessions. It also sets how many sessions of one user count (`clip_sessions`).
- `load`: the offered load, with each user's share of the machine cut at a fixed bound.
- `presence`: users by the periods of the log in which they submit. A log may begin weeks before its site does.
- `kind`: sessions by their groups of size, limit and number of jobs, together. Combinations that a site does not
  allow, such as a long job on half of the machine, stay empty. A user counts with at most `clip_sessions` sessions.
- `work`: sessions by processor time. `size`, `limit`, `length`: sessions by fine class. `ratio`: the used share of
  the limit, by group of limits.
- `hour`, `gap`, `repetition`, `status`: when sessions begin, how fast jobs follow, how often a job is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S, HOUR_S
from clustertwin.workload.fidelity.measures.arrivals import local_hours
from clustertwin.workload.generators.crossover.sessions import session_starts
from clustertwin.workload.generators.private import public_grid as grids
from clustertwin.workload.generators.private.noisy_sums import NoisySums, shares, unit_counts
from clustertwin.workload.generators.private.protected_units import ProtectedUnits
from clustertwin.workload.generators.private.public_grid import PublicGrid
from clustertwin.workload.jobs import Jobs, Status
from clustertwin.workload.machine_size import counted_sizes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: query -> its share of the budget; `load` is left out if the load is public.
WEIGHTS = {"activity": 0.06, "load": 0.4, "presence": 0.04, "kind": 0.2, "work": 0.12, "size": 0.06, "limit": 0.05,
           "length": 0.05, "ratio": 0.06, "hour": 0.04, "gap": 0.02, "repetition": 0.02, "status": 0.02}  # fmt: skip
STATUSES = (Status.UNKNOWN, Status.FAILED, Status.COMPLETED, Status.CANCELLED)
COUNTED_SHARE = 0.5  # of the users: their sessions count in full
LARGEST_SHARE = 0.05  # of the machine, that one user counts with
CUT_OFF = 0.09  # of the counted load: what heavier users have beyond that share. It differs between sites.
PRESENT = 1 / 3  # of the upper quartile of periods: with fewer users, a period is before the time of the site


@dataclass(frozen=True, slots=True)
class ReleasedStatistics:
    """Noisy numbers. They may be published and processed at no further cost."""

    kind: Floats  # (size group, limit group, length group) the probability of each kind of session
    classes: dict[str, Floats]  # column -> the probability of each class, by sessions
    ratio: Floats  # (limit group, class) the used share of the limit
    activity: Floats  # (class,) the number of users with 1, 2-3, 4-7 … sessions
    load: float  # offered load: 1 is all that the machine can do
    hour: Floats  # (2, 24) the rate of sessions on a weekday and on a day of the weekend
    gap: Floats  # (class,) of the pause before the next job of a session
    repetition: Floats  # (3,) the next job has another shape; the same shape; the same shape and a similar run time
    status: Floats  # (2, status) of jobs that stay below their limit, and that reach it
    clip_sessions: int
    in_use: float = 1.0  # share of the periods in which the site is in use; which ones is not released


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a log whose jobs are sorted by unit and time."""

    jobs: Jobs
    job_unit: Ints  # (job,)
    begins: Ints  # (session,) the first job
    unit: Ints  # (session,)
    units: int

    @classmethod
    def of(cls, jobs: Jobs, units: ProtectedUnits) -> Sessions:
        order = np.lexsort((jobs.submit_s, units.unit))
        jobs, unit = jobs.take(order), units.unit[order]
        begins = session_starts(jobs.submit_s, unit)
        return cls(jobs, unit, begins, unit[begins], units.count)

    def classes(self, grid: PublicGrid) -> dict[str, Ints]:
        """column -> (session,) the class of each session. Size and limit are those of its first job."""
        first = self.jobs.take(self.begins)
        length = np.diff(np.append(self.begins, len(self.jobs)))
        limit_s = first.request_s if grid.with_limits else first.run_s
        work = counted_sizes(self.jobs) * np.maximum(self.jobs.run_s, 0) / (grid.machine * HOUR_S)
        return {
            "work": grids.edge_class(np.add.reduceat(work, self.begins), grids.WORK_EDGES),
            "size": grids.nearest(counted_sizes(first).astype(np.float64), grid.sizes.astype(np.float64)),
            "limit": grids.nearest(limit_s, grids.LIMITS_S),
            "length": grids.count_class(length, grids.LENGTH_CLASSES),
        }


def queries(grid: PublicGrid, public_load: bool) -> dict[str, float]:
    """The queries that this log needs, with their weights."""
    unused = (set() if grid.with_limits else {"ratio"}) | ({"load"} if public_load else set())
    return {name: weight for name, weight in WEIGHTS.items() if name not in unused}


def release(
    jobs: Jobs, units: ProtectedUnits, grid: PublicGrid, days: int, sums: NoisySums, public_load: float | None = None
) -> ReleasedStatistics:
    """Ask all queries."""
    sessions = Sessions.of(jobs, units)
    per_unit = np.bincount(sessions.unit, minlength=sessions.units)
    activity = sums.total(
        "activity", np.eye(grids.ACTIVITY_CLASSES)[grids.count_class(per_unit, grids.ACTIVITY_CLASSES)]
    )
    clip = _clip_sessions(activity, sums.multipliers["activity"])
    cells = sessions.classes(grid)
    classes = {
        name: sums.shares(name, unit_counts(sessions.unit, sessions.units, cell, grid.classes(name)) / clip)
        for name, cell in cells.items()
    }
    load = public_load if public_load is not None else _load(sessions, grid, days, sums)
    return ReleasedStatistics(
        _kinds(cells, grid, sessions, clip, sums), classes, _ratios(cells, grid, sessions, clip, sums), activity, load,
        _hours(sessions, sums), _gaps(sessions, sums), _repetition(sessions, sums), _status(sessions, sums), clip,
        _in_use(sessions, days, grid.periods(days), sums),
    )  # fmt: skip


def _clip_sessions(activity: Floats, noise: float) -> int:
    """The number of sessions that half of the users do not exceed, from the noisy counts."""
    return int(2 ** (1 + np.searchsorted(np.cumsum(shares(activity, noise)), COUNTED_SHARE)))


def _load(sessions: Sessions, grid: PublicGrid, days: int, sums: NoisySums) -> float:
    """The offered load. A share beyond the bound is cut off; what that loses at other sites is added again.

    Without noise no bound is needed.
    """
    work = counted_sizes(sessions.jobs) * np.maximum(sessions.jobs.run_s, 0)
    share = np.bincount(sessions.job_unit, weights=work, minlength=sessions.units) / (grid.machine * days * DAY_S)
    bound, cut_off = (LARGEST_SHARE, CUT_OFF) if sums.multipliers["load"] else (1.0, 0.0)
    return float(np.clip(float(sums.total("load", share[:, None], bound)[0]) * (1 + cut_off), 0.02, 2.0))


def _in_use(sessions: Sessions, days: int, periods: int, sums: NoisySums) -> float:
    """The share of periods with users. All users count alike, however many periods they are present in."""
    day = (sessions.jobs.submit_s // DAY_S).astype(np.int64)
    period = np.clip((day - day.min()) * periods // days, 0, periods - 1)  # first and last day are public
    present = unit_counts(sessions.job_unit, sessions.units, period, periods) > 0
    length = np.sqrt(present.sum(axis=1, keepdims=True))
    noisy = sums.total("presence", present / np.maximum(length, 1.0))
    noise, usual = sums.multipliers["presence"], float(np.quantile(noisy, 0.75))
    if usual * (1 - PRESENT) < 3 * noise:  # too few users to tell an empty period from noise
        return 1.0
    return float(np.mean(noisy > PRESENT * usual))


def _kinds(cells: dict[str, Ints], grid: PublicGrid, sessions: Sessions, clip: int, sums: NoisySums) -> Floats:
    groups = grid.size_group[cells["size"]], grids.LIMIT_GROUP[cells["limit"]], grids.LENGTH_GROUP[cells["length"]]
    kind = np.ravel_multi_index(groups, grids.KINDS)
    rows = unit_counts(sessions.unit, sessions.units, kind, int(np.prod(grids.KINDS)))
    return sums.shares("kind", rows / clip).reshape(grids.KINDS)


def _ratios(cells: dict[str, Ints], grid: PublicGrid, sessions: Sessions, clip: int, sums: NoisySums) -> Floats:
    """(limit group, class); a group without certain counts has those of all groups."""
    groups, width = grids.KINDS[1], len(grids.RATIO_EDGES)
    if not grid.with_limits:
        return np.zeros((groups, width))
    first = sessions.jobs.take(sessions.begins)
    used = grids.edge_class(np.maximum(first.run_s, 1.0) / np.maximum(first.request_s, 1.0), grids.RATIO_EDGES)
    cell = grids.LIMIT_GROUP[cells["limit"]] * width + used
    noisy = sums.total("ratio", unit_counts(sessions.unit, sessions.units, cell, groups * width) / clip)
    table = noisy.reshape(groups, width)
    noise = sums.multipliers["ratio"]
    together = shares(table.sum(axis=0), noise * np.sqrt(groups))
    return np.stack([shares(row, noise) if row.sum() > 2 * noise * np.sqrt(width) else together for row in table])


def _hours(sessions: Sessions, sums: NoisySums) -> Floats:
    """(2, 24) sessions per hour, on weekdays and at weekends; all users count alike."""
    hours = local_hours(sessions.jobs.take(sessions.begins)).astype(np.int64)
    weekend = (hours // 24) % 7 >= 5
    cells = weekend * grids.HOURS + hours % 24
    noisy = sums.total("hour", _profiles(unit_counts(sessions.unit, sessions.units, cells, 2 * grids.HOURS)))
    profile = np.maximum(shares(np.maximum(noisy, 0.0)), 1e-4).reshape(2, grids.HOURS)
    return np.asarray(profile / np.array([[5.0], [2.0]]))


def _gaps(sessions: Sessions, sums: NoisySums) -> Floats:
    """(class,) of the pauses within sessions; all users count alike."""
    inside = _inside(sessions)
    gap_s = np.diff(sessions.jobs.submit_s, prepend=0.0)[inside]
    cells = grids.power_class(gap_s, grids.GAP_CLASSES)
    return sums.shares(
        "gap", _profiles(unit_counts(sessions.job_unit[inside], sessions.units, cells, grids.GAP_CLASSES))
    )


def _repetition(sessions: Sessions, sums: NoisySums) -> Floats:
    """(3,) what the next job of a session has in common with the one before; all users count alike."""
    jobs, inside = sessions.jobs, _inside(sessions)
    size, run_s = counted_sizes(jobs), np.maximum(jobs.run_s, 1.0)
    same_shape = np.append(False, (size[1:] == size[:-1]) & (jobs.request_s[1:] == jobs.request_s[:-1]))[inside]
    same_run = np.append(False, np.abs(np.log2(run_s[1:] / run_s[:-1])) < 0.5)[inside]
    cells = same_shape.astype(np.int64) * (1 + same_run)
    return sums.shares("repetition", _profiles(unit_counts(sessions.job_unit[inside], sessions.units, cells, 3)))


def _status(sessions: Sessions, sums: NoisySums) -> Floats:
    """(2, status); all users count alike."""
    jobs, width = sessions.jobs, len(STATUSES)
    code = np.select([jobs.status == status for status in STATUSES], range(width), default=0)
    over = (jobs.request_s > 0) & (jobs.run_s >= jobs.request_s)
    noisy = sums.total(
        "status", _profiles(unit_counts(sessions.job_unit, sessions.units, over * width + code, 2 * width))
    )
    noise = sums.multipliers["status"]
    return np.stack([shares(noisy[:width], noise), shares(noisy[width:], noise)])


def _inside(sessions: Sessions) -> NDArray[np.bool_]:
    """(job,) whether a job follows another one in its session."""
    inside = np.ones(len(sessions.jobs), dtype=bool)
    inside[sessions.begins] = False
    return inside


def _profiles(counts: Floats) -> Floats:
    """(unit, cell) the shares of each unit's own counts."""
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
