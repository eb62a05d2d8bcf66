"""Jobs as rows for models without order: a job table -> columns of numbers and codes, and back to valid jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.generators.superposition import ENDLESS
from clustertwin.workload.generators.workload_change import ModelledLog, check_count
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.machine_size import counted_sizes, counted_unit, machine_size

Floats = NDArray[np.float64]

#: Columns of codes; the other columns are amounts.
CODES = ("user", "status")
#: An endless stream is read only in part. Small blocks leave fewer rows of a slow model unused.
ENDLESS_BLOCK_JOBS = 2_000
CLOCK_STEPS_S = (86_400.0, 3_600.0, 900.0, 600.0, 300.0, 60.0, 30.0, 10.0, 1.0)


@dataclass(frozen=True, slots=True)
class RowDecoder:
    """Turns rows into jobs: it knows the bounds, the units and the dates that a row does not contain."""

    bounds: dict[str, tuple[float, float]]  # smallest and largest value of each column in the log
    unit: str  # what `size` counts: nodes or cpus
    cpus_each: int  # cpus, gpus per unit of size; -1: unknown or not constant
    gpus_each: int
    resolution_s: float
    epoch_s: float
    timezone: str
    machine: dict[str, Any] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Jobs) -> RowDecoder:
        columns = rows(jobs)
        bounds = {name: (float(values.min()), float(values.max())) for name, values in columns.items()}
        bounds["size"] = (1.0, float(machine_size(jobs)))
        words = {name: list(entries) for name, entries in jobs.names.items() if name == "user"}
        unit, sizes = counted_unit(jobs), counted_sizes(jobs)
        return cls(
            bounds, unit, _each(jobs.cpus, sizes), _each(jobs.gpus, sizes), resolution_of(jobs.run_s),
            jobs.epoch_s, jobs.timezone, asdict(jobs.machine), words,
        )  # fmt: skip

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> RowDecoder:
        """The decoder that `asdict` turned into facts."""
        bounds = {name: (float(low), float(high)) for name, (low, high) in facts["bounds"].items()}
        return cls(**{**facts, "bounds": bounds})

    def modelled_log(self, users: Iterable[float] = ()) -> ModelledLog:
        """What a row model knows about its log; `users` are the codes that it generates."""
        codes = frozenset(int(code) for code in users)
        return ModelledLog(int(self.bounds["size"][1]), codes, tuple(self.names.get("user", ())))

    def jobs(self, columns: Mapping[str, NDArray[Any]], drawn: int = 0, clock_s: float = 0.0) -> Jobs:
        """Rows in order -> jobs, rounded and bounded like the log. `clock_s` is the previous arrival."""
        bounded = {name: np.clip(columns[name], *self.bounds[name]) for name in columns}
        size = np.round(bounded["size"]).astype(np.int64)
        run_s = np.round(np.round(bounded["run"] / self.resolution_s) * self.resolution_s, 3)
        given: dict[str, Any] = {self.unit: size, "id": np.arange(drawn + 1, drawn + len(size) + 1)}
        for name, each in (("cpus", self.cpus_each), ("gpus", self.gpus_each)):
            if each >= 0 and name != self.unit:
                given[name] = size * each
        if "limit" in bounded:
            given["request_s"] = np.round(bounded["limit"])
        for name in CODES:
            if name in bounded:
                given[name] = bounded[name].astype(np.int64)
        names = {name: tuple(words) for name, words in self.names.items() if name in given}
        return Jobs.build(
            clock_s + np.cumsum(np.round(bounded["interval"])), run_s, **given,
            epoch_s=self.epoch_s, timezone=self.timezone, machine=Machine(**self.machine), names=names,
        )  # fmt: skip

    def stream(self, n: int, block_jobs: int, draw: Callable[[int], Mapping[str, NDArray[Any]]]) -> Iterator[Jobs]:
        """n jobs in blocks, one after another in time. `draw(count)` returns that many rows."""
        check_count(n)
        if n >= ENDLESS:
            block_jobs = min(block_jobs, ENDLESS_BLOCK_JOBS)
        clock_s = 0.0
        for drawn in range(0, n, block_jobs):
            block = self.jobs(draw(min(block_jobs, n - drawn)), drawn, clock_s)
            clock_s = float(block.submit_s[-1])
            yield block


def rows(jobs: Jobs) -> dict[str, Floats]:
    """The columns that a row model learns, if the log has them."""
    columns = {"interval": jobs.interval_s, "run": jobs.run_s, "size": counted_sizes(jobs).astype(np.float64)}
    if np.any(jobs.request_s > 0):
        columns["limit"] = jobs.request_s
    for name in CODES:
        values = getattr(jobs, name)
        if len(np.unique(values)) > 1:
            columns[name] = values.astype(np.float64)
    return columns


def ranks(values: Floats, rng: np.random.Generator) -> Floats:
    """Ranks in (0, 1). Equal values get a random order; a fixed order would add dependence between columns."""
    order = np.lexsort((rng.random(len(values)), values))
    ranked = np.empty(len(values))
    ranked[order] = (np.arange(len(values)) + 0.5) / len(values)
    return ranked


def resolution_of(values: Floats) -> float:
    """The coarsest of 1, 0.1, 0.01 and 0.001 of which all values are multiples.

    >>> resolution_of(np.array([3.0, 2.5]))
    0.1
    """
    for decimals in (0, 1, 2):
        if np.allclose(values, np.round(values, decimals), rtol=0, atol=1e-6):
            return float(10.0**-decimals)
    return 0.001


def clock_step_s(submit_s: Floats) -> float:
    """The coarsest usual step of which all intervals are multiples: some logs record minutes or dates. 0: none.

    >>> clock_step_s(np.array([90.0, 150.0, 510.0]))
    60.0
    """
    since_s = submit_s - submit_s[0]
    return next((step_s for step_s in CLOCK_STEPS_S if np.any(since_s) and not np.any(since_s % step_s)), 0.0)


def on_clock(submit_s: Floats, step_s: float, first_s: float) -> Floats:
    """Times rounded to the steps of a clock that shows `first_s`; none is before 0."""
    if not step_s:
        return np.maximum(submit_s, 0.0)
    times_s = np.round((submit_s - first_s) / step_s) * step_s + first_s
    return np.where(times_s < 0, times_s % step_s, times_s)


def _each(amount: NDArray[np.int64], size: NDArray[np.int64]) -> int:
    """The amount per unit of size if it is constant, else -1."""
    each = int(amount[0]) // int(size[0])
    return each if np.array_equal(amount, each * size) else -1
