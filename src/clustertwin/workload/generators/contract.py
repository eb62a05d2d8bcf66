"""The contract of generators: a job log -> a fitted generator -> synthetic jobs, also of a changed workload."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import OutputError, TraceError
from clustertwin.workload.generators.superposition import concatenate, superpose
from clustertwin.workload.generators.workload_change import ModelledLog, WorkloadChange
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_sizes

#: epoch, mean loss of the training since the entry before
LossCurve = tuple[tuple[float, float], ...]

LEAST_JOBS = 10


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """A fitted generator as data: facts for JSON and arrays for npz, no code."""

    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


class Fitted(ABC):
    """A generator fitted to a log. The same `rng` gives the same jobs, and n may exceed the length of the log."""

    @abstractmethod
    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        """n jobs in blocks, in the order of submission.

        Draw a block only when it is taken, and hold no more than a few blocks: n can be as large as 2**62.
        """

    def sample(self, n: int, rng: np.random.Generator) -> Jobs:
        """n jobs at once."""
        return concatenate(self.stream(n, rng))

    def what_if(self, n: int | None, rng: np.random.Generator, change: WorkloadChange) -> Iterator[Jobs]:
        """n jobs, or the jobs of `change.days`, of a changed workload.

        This version works for every generator (see `superposition`). Override it in a generator that models a change
        itself, or to refuse one with a `SettingsError` that says why.
        """
        if n is not None and change == WorkloadChange():
            return self.stream(n, rng)
        return superpose(self.stream, self.modelled_log(), change, n, rng)

    def modelled_log(self) -> ModelledLog:
        """What is known about the log. Without it, changes of users and of the machine are refused."""
        return ModelledLog()

    def not_learnt(self) -> tuple[str, ...]:
        """What the log is too short or too plain to say, one sentence each."""
        return ()

    def losses(self) -> LossCurve:
        """How the training went; empty for a generator that is not trained step by step, or that was loaded."""
        return ()

    def state(self) -> GeneratorState:
        """The data that `save` writes; `from_state` restores the generator."""
        raise OutputError(f"{type(self).__name__} cannot be saved without pickle, which clustertwin does not write")

    @classmethod
    def from_state(cls, state: GeneratorState) -> Self:
        raise OutputError(f"{cls.__name__} cannot be loaded")


class Generator(Protocol):
    """The settings of a generator. `fit` does all the work; constructors do none."""

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> Fitted: ...


def check_log(jobs: Jobs) -> None:
    """Refuse a log that cannot be learnt from."""
    if len(jobs) < LEAST_JOBS:
        raise TraceError("the log", f"{len(jobs)} jobs are too few; a generator needs {LEAST_JOBS}")
    if np.any(np.diff(jobs.submit_s) < 0):
        raise TraceError("the log", "the jobs are not in the order of submission; `twin trace clean` sorts them")
    if np.any(counted_sizes(jobs) < 1):
        raise TraceError("the log", "some jobs have no size (nodes or cpus); `twin trace clean` removes them")
    if np.any(jobs.run_s < 0):
        raise TraceError("the log", "some jobs have no run time; `twin trace clean` removes them")
