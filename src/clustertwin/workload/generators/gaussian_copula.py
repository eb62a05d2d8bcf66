"""Gaussian copula: real marginals joined by a correlation matrix of normal scores; the interval is a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.workload.generators.contract import Fitted, GeneratorState, check_log
from clustertwin.workload.generators.job_rows import RowDecoder, ranks, rows
from clustertwin.workload.generators.workload_change import ModelledLog
from clustertwin.workload.jobs import Jobs

Floats = NDArray[np.float64]

BLOCK_JOBS = 100_000
INTERPOLATED = ("interval", "run")  # drawn between values of the log; other columns are drawn from its values


@dataclass(frozen=True, slots=True)
class GaussianCopula:
    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedCopula:
        check_log(jobs)
        normal = require("scipy.special", "models")
        columns = rows(jobs)
        scores = np.stack([normal.ndtri(ranks(values, rng)) for values in columns.values()])  # (column, job)
        ordered = {name: np.sort(values) for name, values in columns.items()}
        return FittedCopula(ordered, np.asarray(np.linalg.cholesky(_correlation(scores))), RowDecoder.of(jobs))


@dataclass(frozen=True, slots=True)
class FittedCopula(Fitted):
    ordered: dict[str, Floats]  # the columns of the log, sorted
    factor: Floats  # (column, column) Cholesky factor of the correlation
    decoder: RowDecoder

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        return self.decoder.stream(n, BLOCK_JOBS, lambda count: self._rows(count, rng))

    def _rows(self, count: int, rng: np.random.Generator) -> dict[str, Floats]:
        normal = require("scipy.special", "models")
        uniform = normal.ndtr(self.factor @ rng.standard_normal((len(self.factor), count)))
        return {
            name: _quantile(values, uniform[i], name in INTERPOLATED)
            for i, (name, values) in enumerate(self.ordered.items())
        }

    def modelled_log(self) -> ModelledLog:
        return self.decoder.modelled_log(np.unique(self.ordered.get("user", ())))

    def state(self) -> GeneratorState:
        arrays = {f"ordered.{name}": values for name, values in self.ordered.items()}
        return GeneratorState({"frame": asdict(self.decoder)}, {**arrays, "factor": self.factor})

    @classmethod
    def from_state(cls, state: GeneratorState) -> FittedCopula:
        ordered = {name.removeprefix("ordered."): v for name, v in state.arrays.items() if name.startswith("ordered.")}
        return cls(ordered, state.arrays["factor"], RowDecoder.from_facts(state.facts["frame"]))


def _correlation(scores: Floats) -> Floats:
    """A positive definite matrix, even if a column is a function of another."""
    return np.asarray(np.corrcoef(scores) * (1 - 1e-6) + 1e-6 * np.eye(len(scores)), dtype=np.float64)


def _quantile(ordered: Floats, uniform: Floats, interpolate: bool) -> Floats:
    if interpolate:
        return np.interp(uniform, (np.arange(len(ordered)) + 0.5) / len(ordered), ordered)
    return ordered[np.minimum((uniform * len(ordered)).astype(np.int64), len(ordered) - 1)]
