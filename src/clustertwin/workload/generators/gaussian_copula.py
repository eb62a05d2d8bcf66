"""Real marginals joined by a Gaussian: rows -> ranks -> a correlation matrix -> rows; the interval is a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.workload.generators.contract import Fitted, State, check_log
from clustertwin.workload.generators.rows import Frame, frame_from, frame_state, rows
from clustertwin.workload.jobs import Jobs

Floats = NDArray[np.float64]

BLOCK_JOBS = 100_000
SMOOTH = ("interval", "run")  # drawn between the log's values; the others are drawn from among them


@dataclass(frozen=True, slots=True)
class GaussianCopula:
    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedCopula:
        check_log(jobs)
        normal = require("scipy.special", "models")
        columns = rows(jobs)
        scores = np.stack([normal.ndtri(_ranks(values, rng)) for values in columns.values()])  # (column, job)
        ordered = {name: np.sort(values) for name, values in columns.items()}
        return FittedCopula(ordered, np.asarray(np.linalg.cholesky(_correlation(scores))), Frame.of(jobs))


@dataclass(frozen=True, slots=True)
class FittedCopula(Fitted):
    ordered: dict[str, Floats]  # the log's columns, sorted
    factor: Floats  # (column, column) Cholesky factor of the correlation
    frame: Frame

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        return self.frame.stream(n, BLOCK_JOBS, lambda count: self._rows(count, rng))

    def _rows(self, count: int, rng: np.random.Generator) -> dict[str, Floats]:
        normal = require("scipy.special", "models")
        uniform = normal.ndtr(self.factor @ rng.standard_normal((len(self.factor), count)))
        return {
            name: _quantile(values, uniform[i], name in SMOOTH) for i, (name, values) in enumerate(self.ordered.items())
        }

    def state(self) -> State:
        arrays = {f"ordered.{name}": values for name, values in self.ordered.items()}
        return State({"frame": frame_state(self.frame)}, {**arrays, "factor": self.factor})

    @classmethod
    def from_state(cls, state: State) -> FittedCopula:
        ordered = {name.removeprefix("ordered."): v for name, v in state.arrays.items() if name.startswith("ordered.")}
        return cls(ordered, state.arrays["factor"], frame_from(state.facts["frame"]))


def _ranks(values: Floats, rng: np.random.Generator) -> Floats:
    """Ranks in (0, 1); equal values in random order, or their ties would count as dependence."""
    order = np.lexsort((rng.random(len(values)), values))
    ranks = np.empty(len(values))
    ranks[order] = (np.arange(len(values)) + 0.5) / len(values)
    return ranks


def _correlation(scores: Floats) -> Floats:
    """Positive definite, even where a column is a function of another."""
    return np.asarray(np.corrcoef(scores) * (1 - 1e-6) + 1e-6 * np.eye(len(scores)), dtype=np.float64)


def _quantile(ordered: Floats, uniform: Floats, smooth: bool) -> Floats:
    if smooth:
        return np.interp(uniform, (np.arange(len(ordered)) + 0.5) / len(ordered), ordered)
    return ordered[np.minimum((uniform * len(ordered)).astype(np.int64), len(ordered) - 1)]
