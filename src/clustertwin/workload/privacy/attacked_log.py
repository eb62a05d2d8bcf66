"""Job tables -> the columns that attacks compare, on one clock, with one code for a user, a project or a shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import Unit, job_sizes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AttackedLog:
    """The columns of one log. Users and projects that both logs name alike have the same code; -1 is unknown."""

    at_s: Floats
    size: Floats
    limit_s: Floats
    run_s: Floats
    user: Ints
    project: Ints
    shape: Ints  # equal for jobs of the same size and limit

    def __len__(self) -> int:
        return len(self.at_s)

    def take(self, which: NDArray[np.bool_] | Ints) -> AttackedLog:
        return AttackedLog(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    @property
    def day(self) -> Ints:
        return np.asarray(self.at_s // DAY_S, dtype=np.int64)


def attacked(*logs: Jobs) -> list[AttackedLog]:
    """The columns of all logs. Dates are used if all have them, otherwise each log counts from its own time zero."""
    dated = all(log.epoch_s for log in logs)
    # All logs count in the same unit: a log of SWF has no nodes.
    unit: Unit = "nodes" if all(np.any(log.nodes > 0) for log in logs) else "cpus"
    tables = [_columns(log, dated, unit) for log in logs]
    users, projects = _shared_codes(logs, "user"), _shared_codes(logs, "group")
    sizes, limits = (np.concatenate([table[i] for table in tables]) for i in (1, 2))
    shape = _pair_codes(sizes, limits)
    shapes = np.split(shape, np.cumsum([len(log) for log in logs])[:-1])
    return [AttackedLog(*tables[i], users[i], projects[i], shapes[i]) for i in range(len(logs))]


def _pair_codes(first: Floats, second: Floats) -> Ints:
    """(row,) the place of each pair among the distinct pairs, in their order."""
    seconds, column = np.unique(second, return_inverse=True)
    row = np.unique(first, return_inverse=True)[1]
    return np.asarray(np.unique(row * len(seconds) + column, return_inverse=True)[1], dtype=np.int64)


def _columns(jobs: Jobs, dated: bool, unit: Unit) -> tuple[Floats, Floats, Floats, Floats]:
    at_s = jobs.submit_s + (jobs.epoch_s if dated else 0.0)
    size = np.maximum(job_sizes(jobs, unit), 0).astype(np.float64)
    return at_s, size, np.maximum(jobs.request_s, 0), np.maximum(jobs.run_s, 0)


def _shared_codes(logs: Sequence[Jobs], column: str) -> list[Ints]:
    """The codes of a column in each log. Equal names have equal codes; without names, equal codes are equal."""
    words = [_words(log, column) for log in logs]
    known = {word: code for code, word in enumerate(dict.fromkeys(word for its_words in words for word in its_words))}
    codes = []
    for log, its_words in zip(logs, words, strict=True):
        distinct, index = np.unique(getattr(log, column), return_inverse=True)
        table = np.array([known[word] if code >= 0 else -1 for code, word in zip(distinct, its_words, strict=True)])
        codes.append(table.astype(np.int64)[index])
    return codes


def _words(jobs: Jobs, column: str) -> list[str]:
    """The name of each distinct code of a column, in the order of the codes."""
    names = jobs.names.get(column, ())
    return [names[code] if 0 <= code < len(names) else str(code) for code in np.unique(getattr(jobs, column)).tolist()]
