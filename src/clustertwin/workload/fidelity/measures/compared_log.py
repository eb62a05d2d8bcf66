"""A log prepared for comparison: jobs and the original values of rounded columns -> named float columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.formats import ParsedLog
from clustertwin.workload.jobs import Jobs

Floats = NDArray[np.float64]

#: The compared columns, if a log has them: name in reports -> column of the job table.
COMPARED = {"interval": "interval_s", "run": "run_s", "limit": "request_s", "cpus": "cpus", "nodes": "nodes",
            "gpus": "gpus", "memory": "memory_bytes"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ComparedLog:
    """Jobs with a name.

    `as_written` holds the original values of counts that a lenient reader rounded; they are compared unrounded.
    """

    name: str
    jobs: Jobs
    as_written: dict[str, Floats] = field(default_factory=dict)
    dates_s: Floats | None = None  # when part of a log was submitted, if its jobs now stand one after another

    @classmethod
    def of(cls, log: ComparedLog | ParsedLog | Jobs, name: str = "") -> ComparedLog:
        if isinstance(log, ComparedLog):
            return log
        if isinstance(log, ParsedLog):
            return cls(name, log.jobs, log.as_written)
        return cls(name, log)

    def __len__(self) -> int:
        return len(self.jobs)

    def column(self, name: str) -> Floats:
        """A compared column. The interval is the time since the previous job."""
        if name == "interval":
            # In a log without a date, time zero is the start of the log, so the first interval counts.
            first = self.jobs.submit_s[:1] if self.jobs.epoch_s else 0.0
            return np.diff(self.jobs.submit_s, prepend=first)
        values = self.as_written.get(COMPARED[name], getattr(self.jobs, COMPARED[name]))
        return np.asarray(values, dtype=np.float64)

    def table(self, names: tuple[str, ...]) -> Floats:
        """(job, column)"""
        return np.column_stack([self.column(name) for name in names])

    def dated(self) -> Jobs:
        """The jobs at the hours and on the weekdays at which they were submitted."""
        return self.jobs if self.dates_s is None else replace(self.jobs, submit_s=self.dates_s)

    def rows(self, which: NDArray[np.intp], name: str) -> ComparedLog:
        """The chosen jobs one after another, each with its original interval."""
        jobs = self.jobs.take(which)
        submit_s = np.cumsum(self.column("interval")[which])
        jobs = replace(jobs, submit_s=submit_s, id=np.arange(1, len(which) + 1))
        return ComparedLog(name, jobs, {column: values[which] for column, values in self.as_written.items()})


def with_nodes(synthetic: ComparedLog, real: ComparedLog) -> ComparedLog:
    """Add node counts to a log that has only processors, such as SWF, if the real log has a constant ratio of both."""
    ours, theirs = synthetic.jobs, real.jobs
    if np.any(ours.nodes >= 0) or not np.all((theirs.nodes > 0) & (theirs.cpus > 0)):
        return synthetic
    per_node = np.unique(theirs.cpus / theirs.nodes)
    if len(per_node) > 1 or not np.all(ours.cpus > 0):
        return synthetic
    nodes = np.ceil(ours.cpus / per_node[0]).astype(np.int64)
    return replace(synthetic, jobs=replace(ours, nodes=nodes))


def compared(real: ComparedLog, synthetic: ComparedLog) -> tuple[str, ...]:
    """The columns that vary in the real log and are known in both logs."""

    def usable(name: str) -> bool:
        a, b = real.column(name), synthetic.column(name)
        return bool(np.any(a != a[0]) and np.any(a >= 0) and np.any(b >= 0))

    return tuple(name for name in COMPARED if usable(name))
