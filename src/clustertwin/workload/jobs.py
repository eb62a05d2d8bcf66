"""The job table: n jobs as numpy columns. Every reader gives one, everything else takes one.

As in SWF, -1 means unknown. Times are seconds; `submit_s` counts from `epoch_s` (0 where the log has no date).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Status(IntEnum):
    """How a job ended, in SWF's own numbers."""

    UNKNOWN = -1
    FAILED = 0
    COMPLETED = 1
    CANCELLED = 5


@dataclass(frozen=True, slots=True)
class Machine:
    """The homogeneous machine a log comes from; 0 means not known."""

    nodes: int = 0
    cpus_per_node: int = 0
    gpus_per_node: int = 0
    name: str = ""

    @property
    def cpus(self) -> int:
        return self.nodes * self.cpus_per_node


@dataclass(frozen=True, slots=True)
class Jobs:
    """A job log. `user`, `group` and `queue` are small codes; `names` gives their words where there are any."""

    id: NDArray[np.int64]
    submit_s: NDArray[np.float64]  # since epoch_s, not decreasing
    wait_s: NDArray[np.float64]
    run_s: NDArray[np.float64]
    request_s: NDArray[np.float64]  # the limit the user asked for
    nodes: NDArray[np.int64]
    cpus: NDArray[np.int64]  # all cpus (SWF: processors) of the job
    gpus: NDArray[np.int64]
    memory_bytes: NDArray[np.float64]  # per job
    user: NDArray[np.int64]
    group: NDArray[np.int64]
    queue: NDArray[np.int64]
    status: NDArray[np.int64]  # a Status
    epoch_s: float = 0.0
    machine: Machine = field(default_factory=Machine)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # column -> word of code i
    header: tuple[str, ...] = ()  # comment lines of the log it was read from
    timezone: str = "UTC"  # where the log's hours of the day are counted, an IANA name

    @classmethod
    def build(cls, submit_s: Any, run_s: Any, **columns: Any) -> Jobs:
        """A table from whichever columns there are; the rest are unknown, ids count from 1."""
        n = len(submit_s)
        given: dict[str, Any] = {"id": np.arange(1, n + 1), "submit_s": submit_s, "run_s": run_s, **columns}
        kinds = {name: np.float64 if name.endswith(("_s", "_bytes")) else np.int64 for name in COLUMNS}
        made: dict[str, Any] = {
            name: np.ascontiguousarray(given.pop(name), dtype=kind) if name in given else np.full(n, -1, dtype=kind)
            for name, kind in kinds.items()
        }
        return cls(**made, **given)

    def __len__(self) -> int:
        return len(self.id)

    def take(self, which: NDArray[Any] | slice) -> Jobs:
        """The jobs chosen by a mask, indices or a slice."""
        return replace(self, **{name: getattr(self, name)[which] for name in COLUMNS})

    def columns(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in COLUMNS}

    @property
    def interval_s(self) -> NDArray[np.float64]:
        """Seconds since the previous submission; the first job's is 0."""
        return np.diff(self.submit_s, prepend=self.submit_s[:1])


#: The names of the columns, in order.
COLUMNS = tuple(f.name for f in fields(Jobs))[:13]
