"""Jobs as rows for models that know no order: a job table -> columns of numbers and codes, and back to valid jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.generators.contract import check_count, sizes
from clustertwin.workload.generators.smoothing import resolution_of
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.machine_size import machine_size

Floats = NDArray[np.float64]

#: Columns whose values are codes; the others are amounts.
CODES = ("user", "status")


@dataclass(frozen=True, slots=True)
class Frame:
    """What rows do not say: how to make a job of one again."""

    bounds: dict[str, tuple[float, float]]  # least and most the log shows of each column
    unit: str  # what `size` counts: nodes or cpus
    cpus_each: int  # cpus, gpus of one unit of size; -1: not known, or no fixed number
    gpus_each: int
    resolution_s: float
    epoch_s: float
    timezone: str
    machine: dict[str, Any] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Jobs) -> Frame:
        columns = rows(jobs)
        bounds = {name: (float(values.min()), float(values.max())) for name, values in columns.items()}
        bounds["size"] = (1.0, float(machine_size(jobs)))
        words = {name: list(entries) for name, entries in jobs.names.items() if name == "user"}
        unit = "nodes" if np.any(jobs.nodes > 0) else "cpus"
        return cls(
            bounds, unit, _each(jobs.cpus, sizes(jobs)), _each(jobs.gpus, sizes(jobs)), resolution_of(jobs.run_s),
            jobs.epoch_s, jobs.timezone, asdict(jobs.machine), words,
        )  # fmt: skip

    def jobs(self, columns: Mapping[str, NDArray[Any]], made: int = 0, clock_s: float = 0.0) -> Jobs:
        """Rows in order -> jobs, rounded as the log is and kept within what it shows; `clock_s`: the last arrival."""
        kept = {name: np.clip(columns[name], *self.bounds[name]) for name in columns}
        size = np.round(kept["size"]).astype(np.int64)
        run_s = np.round(np.round(kept["run"] / self.resolution_s) * self.resolution_s, 3)
        given: dict[str, Any] = {self.unit: size, "id": np.arange(made + 1, made + len(size) + 1)}
        for name, each in (("cpus", self.cpus_each), ("gpus", self.gpus_each)):
            if each >= 0 and name != self.unit:
                given[name] = size * each
        if "limit" in kept:
            given["request_s"] = np.round(kept["limit"])
        for name in CODES:
            if name in kept:
                given[name] = kept[name].astype(np.int64)
        names = {name: tuple(words) for name, words in self.names.items() if name in given}
        return Jobs.build(
            clock_s + np.cumsum(np.round(kept["interval"])), run_s, **given,
            epoch_s=self.epoch_s, timezone=self.timezone, machine=Machine(**self.machine), names=names,
        )  # fmt: skip

    def stream(self, n: int, block_jobs: int, draw: Callable[[int], Mapping[str, NDArray[Any]]]) -> Iterator[Jobs]:
        """n jobs in blocks, one after another in time; `draw` gives so many rows."""
        check_count(n)
        clock_s = 0.0
        for made in range(0, n, block_jobs):
            block = self.jobs(draw(min(block_jobs, n - made)), made, clock_s)
            clock_s = float(block.submit_s[-1])
            yield block


def rows(jobs: Jobs) -> dict[str, Floats]:
    """The columns a row model learns, where the log has them."""
    columns = {"interval": jobs.interval_s, "run": jobs.run_s, "size": sizes(jobs).astype(np.float64)}
    if np.any(jobs.request_s > 0):
        columns["limit"] = jobs.request_s
    for name in CODES:
        values = getattr(jobs, name)
        if len(np.unique(values)) > 1:
            columns[name] = values.astype(np.float64)
    return columns


def frame_state(frame: Frame) -> dict[str, Any]:
    return asdict(frame)


def frame_from(facts: dict[str, Any]) -> Frame:
    bounds = {name: (float(low), float(high)) for name, (low, high) in facts["bounds"].items()}
    return Frame(**{**facts, "bounds": bounds})


def _each(amount: NDArray[np.int64], size: NDArray[np.int64]) -> int:
    """How much goes with one unit of size, if that never changes."""
    each = int(amount[0]) // int(size[0])
    return each if np.array_equal(amount, each * size) else -1
