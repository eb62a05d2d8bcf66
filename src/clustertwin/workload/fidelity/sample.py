"""A log as it is compared: jobs, their size on the machine, and columns as they were written -> named float columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.formats import Reading
from clustertwin.workload.jobs import Jobs

Floats = NDArray[np.float64]

#: What is compared, where a log has it: name in reports -> column.
COMPARED = {"interval": "interval_s", "run": "run_s", "limit": "request_s", "cpus": "cpus", "nodes": "nodes",
            "gpus": "gpus", "memory": "memory_bytes"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """Jobs with a name; `as_written`: counts a lenient reader had to round (half a node is compared as half a node)."""

    name: str
    jobs: Jobs
    as_written: dict[str, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, log: Sample | Reading | Jobs, name: str = "") -> Sample:
        if isinstance(log, Sample):
            return log
        if isinstance(log, Reading):
            return cls(name, log.jobs, log.as_written)
        return cls(name, log)

    def __len__(self) -> int:
        return len(self.jobs)

    def column(self, name: str) -> Floats:
        """A compared column; an interval is the time since the job before."""
        if name == "interval":
            # A log without a date may start anywhere: only then is the time before its first job part of it.
            first = self.jobs.submit_s[:1] if self.jobs.epoch_s else 0.0
            return np.diff(self.jobs.submit_s, prepend=first)
        values = self.as_written.get(COMPARED[name], getattr(self.jobs, COMPARED[name]))
        return np.asarray(values, dtype=np.float64)

    def table(self, names: tuple[str, ...]) -> Floats:
        """(job, column)"""
        return np.column_stack([self.column(name) for name in names])

    def rows(self, which: NDArray[np.intp], name: str) -> Sample:
        """These jobs one after another, each with the interval it had."""
        jobs = self.jobs.take(which)
        submit_s = np.cumsum(self.column("interval")[which])
        jobs = replace(jobs, submit_s=submit_s, id=np.arange(1, len(which) + 1))
        return Sample(name, jobs, {column: values[which] for column, values in self.as_written.items()})


def in_nodes_too(synthetic: Sample, real: Sample) -> Sample:
    """A log in processors alone, as SWF writes it, beside one in nodes: its nodes, where the real log implies them."""
    ours, theirs = synthetic.jobs, real.jobs
    if np.any(ours.nodes >= 0) or not np.all((theirs.nodes > 0) & (theirs.cpus > 0)):
        return synthetic
    per_node = np.unique(theirs.cpus / theirs.nodes)
    if len(per_node) > 1 or not np.all(ours.cpus > 0):
        return synthetic
    nodes = np.ceil(ours.cpus / per_node[0]).astype(np.int64)
    return replace(synthetic, jobs=replace(ours, nodes=nodes))


def compared(real: Sample, synthetic: Sample) -> tuple[str, ...]:
    """The columns that vary in the real log and are known in both."""

    def tells(name: str) -> bool:
        a, b = real.column(name), synthetic.column(name)
        return len(np.unique(a)) > 1 and bool(np.any(a >= 0) and np.any(b >= 0))

    return tuple(name for name in COMPARED if tells(name))
