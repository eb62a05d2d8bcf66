"""Kinds of jobs: job table -> distinct shapes, limits and outcomes, and back to a job table.

A kind is what users repeat: nodes, cpus, gpus, memory, limit, group, queue, status, and whether the job reached its
limit or ran for 0 s. A shape or a limit that fewer than `COMMON_JOBS` jobs have becomes one that stands for as many, so
that no kind is one job's own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.generators.job_limits import limit_is_run_time, limits
from clustertwin.workload.generators.job_rows import clock_step_s, resolution_of
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.machine_size import counted_sizes, machine_size

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COMMON_JOBS = 3
#: Codes of the column `over`.
REACHED_LIMIT, RAN_0_S = 1, 2
FAR = float(np.log(2))  # a rare size or limit is not replaced by one of less than half or more than twice its value
KEPT = ("group", "queue", "status")
SHAPE = ("nodes", "cpus", "gpus")


@dataclass(frozen=True, slots=True)
class KindTable:
    """The kinds of a log, and what a job has beside its kind."""

    columns: dict[str, NDArray[Any]]  # by name of the job table, (kind,); `size` and `over` besides
    facts: dict[str, Any]  # date, machine, names, resolution

    @classmethod
    def of(cls, jobs: Jobs) -> tuple[KindTable, Ints]:
        """The kinds of a log, and the kind of each job."""
        limit_s, over = limits(jobs)
        size = counted_sizes(jobs)
        shape = np.column_stack([jobs.nodes, jobs.cpus, jobs.gpus, _two_digits(jobs.memory_bytes)])
        shape = shape[common_rows(shape, np.log(size))]
        limit_s = limit_s[common_rows(limit_s[:, None], np.log(np.maximum(limit_s, 1.0)))]
        rest = np.column_stack([getattr(jobs, name) for name in KEPT])
        ended = np.where(over, REACHED_LIMIT, np.where(jobs.run_s == 0, RAN_0_S, 0))
        rows = np.column_stack([shape, limit_s, rest, ended]).astype(np.float64)
        distinct, kind = np.unique(rows, axis=0, return_inverse=True)
        names = (*SHAPE, "memory_bytes", "request_s", *KEPT, "over")
        columns: dict[str, NDArray[Any]] = {
            name: distinct[:, i] if name.endswith(("_s", "_bytes")) else distinct[:, i].astype(np.int64)
            for i, name in enumerate(names)
        }
        columns["size"] = columns["nodes"] if np.any(jobs.nodes > 0) else columns["cpus"]
        facts = {
            "epoch_s": jobs.epoch_s, "timezone": jobs.timezone, "machine": asdict(jobs.machine),
            "machine_size": machine_size(jobs), "names": {name: list(words) for name, words in jobs.names.items()},
            "resolution_s": resolution_of(jobs.run_s), "least_run_s": _shortest_s(jobs.run_s),
            "most_run_s": _longest_s(jobs.run_s), "clock_s": clock_step_s(jobs.submit_s),
            "first_s": float(jobs.submit_s[0]),
            "limit_is_run_time": limit_is_run_time(jobs), "overrun_s": _largest_overrun(jobs),
        }  # fmt: skip
        return cls(columns, facts), kind.ravel()

    def jobs(self, kind: Ints, user: Ints, submit_s: Floats, run_s: Floats, drawn: int) -> Jobs:
        """A job table of these kinds; `drawn` jobs precede it."""
        given = {name: values[kind] for name, values in self.columns.items() if name not in ("size", "over")}
        if self.facts["limit_is_run_time"]:
            given["request_s"] = run_s.copy()
        names = {name: tuple(words) for name, words in self.facts["names"].items()}
        return Jobs.build(
            submit_s, run_s, **given, user=user, id=np.arange(drawn + 1, drawn + len(kind) + 1),
            epoch_s=self.facts["epoch_s"], timezone=self.facts["timezone"], names=names,
            machine=Machine(**self.facts["machine"]),
        )  # fmt: skip

    def bounds(self, kind: Ints) -> Floats:
        """(job, 3) the bounds of a run time, and the limit if it counts from there."""
        limit_s, over = self.columns["request_s"][kind], self.columns["over"][kind] == REACHED_LIMIT
        ran_0_s = self.columns["over"][kind] == RAN_0_S
        least_s = np.where(over | ran_0_s, 0.0, self.facts["least_run_s"])
        below_s = np.where(limit_s > 0, limit_s - self.facts["resolution_s"], np.inf)
        below_s = np.minimum(below_s, self.facts.get("most_run_s", np.inf))  # older saved models lack it
        most_s = np.where(over, self.facts["overrun_s"], np.where(ran_0_s, 0.0, np.maximum(below_s, least_s)))
        return np.column_stack([least_s, most_s, np.where(over, limit_s, 0.0)])


def common_rows(rows: NDArray[Any], place: Floats) -> Ints:
    """(row,) an index of a common row: a row's own, or for a rare one the nearest common row along `place`.

    Rare rows far from every common one form groups of `COMMON_JOBS` neighbours; the middle row stands for its group.

    >>> rows = np.array([[1], [1], [1], [2], [8], [8], [8]])
    >>> common_rows(rows, np.log(rows[:, 0])).tolist()
    [0, 0, 0, 0, 4, 4, 4]
    >>> common_rows(np.array([[1], [2], [3], [100], [110], [120]]), np.arange(6.0)).tolist()
    [1, 1, 1, 4, 4, 4]
    """
    _, first, index, counts = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    wanted = place[first]
    common = np.flatnonzero(counts >= COMMON_JOBS)
    common = common[np.argsort(wanted[common], kind="stable")]
    stands_for, distance = _nearest(common, wanted)
    far = np.flatnonzero((counts < COMMON_JOBS) & (distance > FAR))
    if counts[far].sum() >= COMMON_JOBS or not len(common):
        far = far[np.argsort(wanted[far], kind="stable")]
        before = np.cumsum(counts[far]) - counts[far]
        # The last group takes the rest, so that it is not smaller than the others.
        groups = np.minimum(before // COMMON_JOBS, max(0, counts[far].sum() // COMMON_JOBS - 1))
        for group in np.unique(groups):
            members = far[groups == group]
            stands_for[members] = members[len(members) // 2]
    return first[np.where(counts >= COMMON_JOBS, np.arange(len(counts)), stands_for)][index.ravel()]


def _nearest(common: Ints, wanted: Floats) -> tuple[Ints, Floats]:
    """(distinct row,) the nearest of the common rows, which are sorted by place, and its distance."""
    if not len(common):
        return np.zeros(len(wanted), dtype=np.int64), np.full(len(wanted), np.inf)
    places = wanted[common]
    right = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(np.abs(places[left] - wanted) <= np.abs(places[right] - wanted), left, right)
    return common[nearest], np.abs(places[nearest] - wanted)


def _largest_overrun(jobs: Jobs) -> float:
    _, over = limits(jobs)
    return float(np.max(np.where(over, jobs.run_s - jobs.request_s, 0.0)))


def _shortest_s(run_s: Floats) -> float:
    return float(run_s[run_s > 0].min()) if np.any(run_s > 0) else 0.0


def _longest_s(run_s: Floats) -> float:
    """The longest run time. Rounded up if one job has it, so that it is not that job's own."""
    longest_s = float(run_s.max())
    if np.count_nonzero(run_s == longest_s) >= COMMON_JOBS or longest_s <= 0:
        return longest_s
    scale = 10.0 ** (np.floor(np.log10(longest_s)) - 1)
    return float(np.ceil(longest_s / scale) * scale)


def _two_digits(amount: Floats) -> Floats:
    scale = 10.0 ** (np.floor(np.log10(np.maximum(amount, 1.0))) - 1)
    return np.where(amount > 0, np.round(amount / scale) * scale, amount)
