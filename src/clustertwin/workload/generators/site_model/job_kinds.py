"""Kinds of jobs: job table -> distinct shapes, limits and outcomes, and back to a job table.

A kind is what users repeat: nodes, cpus, gpus, memory, limit, group, queue, status, and whether the job reached its
limit. A shape or a limit that fewer than `COMMON_JOBS` jobs have becomes the nearest common one, so that no kind is one
job's own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.generators.job_rows import resolution_of
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.machine_size import counted_sizes, machine_size

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COMMON_JOBS = 3
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
        rows = np.column_stack([shape, limit_s, rest, over]).astype(np.float64)
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
            "resolution_s": resolution_of(jobs.run_s), "least_run_s": float(jobs.run_s.min()),
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


def limit_is_run_time(jobs: Jobs) -> bool:
    """Some logs give the run time as the limit; it then says nothing of its own."""
    return bool(np.mean(jobs.run_s == jobs.request_s) > 0.5)


def limits(jobs: Jobs) -> tuple[Floats, NDArray[np.bool_]]:
    """The limit of each job, and whether the job reached it; without limits -1 and False."""
    if limit_is_run_time(jobs):
        return np.full(len(jobs), -1.0), np.zeros(len(jobs), dtype=bool)
    return jobs.request_s, (jobs.request_s > 0) & (jobs.run_s >= jobs.request_s)


def common_rows(rows: NDArray[Any], place: Floats) -> Ints:
    """(row,) an index of a common row: a row's own, or for a rare one the nearest common row along `place`.

    >>> rows = np.array([[1], [1], [1], [2], [8], [8], [8]])
    >>> common_rows(rows, np.log(rows[:, 0])).tolist()
    [0, 0, 0, 0, 4, 4, 4]
    """
    _, first, index, counts = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    index = index.ravel()
    common = np.flatnonzero(counts >= COMMON_JOBS)
    if not len(common):
        return first[index]
    ordered = common[np.argsort(place[first[common]], kind="stable")]
    places = place[first[ordered]]
    wanted = place[first]
    right = (
        np.clip(np.searchsorted(places, wanted), 1, len(places) - 1) if len(places) > 1 else np.zeros(len(first), int)
    )
    left = np.maximum(right - 1, 0)
    nearest = np.where(np.abs(places[left] - wanted) <= np.abs(places[right] - wanted), left, right)
    return first[np.where(counts >= COMMON_JOBS, np.arange(len(counts)), ordered[nearest])][index]


def _largest_overrun(jobs: Jobs) -> float:
    _, over = limits(jobs)
    return float(np.max(np.where(over, jobs.run_s - jobs.request_s, 0.0)))


def _two_digits(amount: Floats) -> Floats:
    scale = 10.0 ** (np.floor(np.log10(np.maximum(amount, 1.0))) - 1)
    return np.where(amount > 0, np.round(amount / scale) * scale, amount)
