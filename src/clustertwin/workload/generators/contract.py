"""The contract of generators: a job log -> a fitted model -> as many synthetic jobs as asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import OutputError, SettingsError, TraceError
from clustertwin.workload.jobs import COLUMNS, Jobs

LEAST_JOBS = 10


@dataclass(frozen=True, slots=True)
class State:
    """What a fitted generator is on disk: facts for JSON, arrays for npz; nothing that could run."""

    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


class Fitted(ABC):
    """A generator that has seen a log. The same `rng` gives the same jobs; n may exceed the log."""

    @abstractmethod
    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        """n jobs in blocks, in the order of submission, at constant memory."""

    def sample(self, n: int, rng: np.random.Generator) -> Jobs:
        """n jobs at once."""
        return concatenate(self.stream(n, rng))

    def state(self) -> State:
        """What `storage.save` writes; `from_state` is its way back."""
        raise OutputError(f"{type(self).__name__} cannot be saved without pickle, which clustertwin never writes")

    @classmethod
    def from_state(cls, state: State) -> Self:
        raise OutputError(f"{cls.__name__} cannot be loaded")


class Generator(Protocol):
    """Settings that can learn. `fit` does all the work; constructors do none."""

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> Fitted: ...


def check_log(jobs: Jobs) -> None:
    """A log that can be learnt from."""
    if len(jobs) < LEAST_JOBS:
        raise TraceError("the log", f"{len(jobs)} jobs are too few to learn from, {LEAST_JOBS} are needed")
    if np.any(np.diff(jobs.submit_s) < 0):
        raise TraceError("the log", "jobs are not in the order of submission; `twin trace clean` sorts them")
    if np.any(sizes(jobs) < 1):
        raise TraceError("the log", "some jobs have no size (nodes or cpus); `twin trace clean` drops them")
    if np.any(jobs.run_s < 0):
        raise TraceError("the log", "some jobs have no run time; `twin trace clean` drops them")


def check_count(n: int) -> None:
    if n < 1:
        raise SettingsError(f"{n} jobs cannot be generated; ask for one or more")


def sizes(jobs: Jobs) -> NDArray[np.int64]:
    """What jobs occupy: nodes where the log counts them, else cpus."""
    return jobs.nodes if np.any(jobs.nodes > 0) else jobs.cpus


def concatenate(blocks: Iterable[Jobs]) -> Jobs:
    """Blocks of one stream -> one table; what is not a column is the first block's."""
    parts = list(blocks)
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    return replace(parts[0], **columns)
