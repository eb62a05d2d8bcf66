"""The job table: n jobs as numpy columns. Readers return it; everything else in this package takes it.

As in SWF, -1 means unknown. Times are in seconds. `submit_s` counts from `epoch_s`, which is 0 if the log has no date.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.core.extras import require
from clustertwin.core.tables import ColumnTable


class Status(IntEnum):
    """How a job ended, with the numbers of SWF."""

    UNKNOWN = -1
    FAILED = 0
    COMPLETED = 1
    CANCELLED = 5


@dataclass(frozen=True, slots=True)
class Machine:
    """The homogeneous machine of a log; 0 means unknown."""

    nodes: int = 0
    cpus_per_node: int = 0
    gpus_per_node: int = 0
    name: str = ""

    @property
    def cpus(self) -> int:
        return self.nodes * self.cpus_per_node


@dataclass(frozen=True, slots=True, repr=False)
class Jobs(ColumnTable):
    """A job log. `user`, `group` and `queue` are small codes; `names` holds their names if the log has any."""

    id: NDArray[np.int64]
    submit_s: NDArray[np.float64]  # since epoch_s, not decreasing
    wait_s: NDArray[np.float64]
    run_s: NDArray[np.float64]
    request_s: NDArray[np.float64]  # the time limit that the user requested
    nodes: NDArray[np.int64]
    cpus: NDArray[np.int64]  # cpus (SWF: processors) of the whole job
    gpus: NDArray[np.int64]
    memory_bytes: NDArray[np.float64]  # per job
    user: NDArray[np.int64]
    group: NDArray[np.int64]
    queue: NDArray[np.int64]
    status: NDArray[np.int64]  # a Status
    epoch_s: float = 0.0
    machine: Machine = field(default_factory=Machine)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # column -> the name of each code
    header: tuple[str, ...] = ()  # comment lines of the file
    timezone: str = "UTC"  # IANA name of the zone in which hours of the day are counted

    @classmethod
    def build(cls, submit_s: Any, run_s: Any, **columns: Any) -> Jobs:
        """A table from the given columns. Other columns are unknown; ids count from 1.

        >>> Jobs.build(submit_s=[0, 5], run_s=[60, 60], cpus=[4, 8]).nodes.tolist()
        [-1, -1]
        """
        n = len(submit_s)
        given: dict[str, Any] = {"id": np.arange(1, n + 1), "submit_s": submit_s, "run_s": run_s, **columns}
        kinds = {name: np.float64 if name.endswith(("_s", "_bytes")) else np.int64 for name in COLUMNS}
        table: dict[str, Any] = {
            name: _column(name, given.pop(name), kind, n) if name in given else np.full(n, -1, dtype=kind)
            for name, kind in kinds.items()
        }
        return cls(**table, **given)

    @classmethod
    def from_pandas(cls, frame: Any) -> Jobs:
        """A table from a pandas DataFrame with these columns, of which submit_s (or dates in submit) and run_s are due.

        >>> import pandas
        >>> frame = pandas.DataFrame({"submit": pandas.to_datetime(["2026-01-05 09:00+01:00"]), "run_s": 60, "cpus": 4})
        >>> Jobs.from_pandas(frame)
        <Jobs: 1 jobs in 0.0 days>
        """
        from clustertwin.workload.job_frame import jobs_from_frame

        return jobs_from_frame(frame)

    def __len__(self) -> int:
        return len(self.id)

    def take(self, which: NDArray[Any] | slice) -> Jobs:
        """The jobs selected by a mask, indices or a slice."""
        return replace(self, **{name: getattr(self, name)[which] for name in COLUMNS})

    def columns(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in COLUMNS}

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each job. Unknown values are missing (NaN or NA).

        `user`, `group` and `queue` are names where the log has names, `status` is a word. A log with a date has a
        column `submit` with the time of submission in the time zone of the log.
        """
        pandas = require("pandas", "pandas")
        frame = pandas.DataFrame({name: _series(pandas, self, name) for name in COLUMNS})
        if self.epoch_s:
            submit = pandas.to_datetime(self.epoch_s + self.submit_s, unit="s", utc=True)
            frame.insert(1, "submit", submit.tz_convert(self.timezone))
        return frame

    def table(self) -> dict[str, NDArray[Any]]:
        return self.columns()

    def to_arrow(self) -> Any:
        """A pyarrow Table with a row for each job. Unknown values are null, names are dictionaries."""
        arrow = require("pyarrow", "arrow")
        return arrow.table({name: _arrow_array(arrow, self, name) for name in COLUMNS})

    def caption(self) -> str:
        days = float(np.ptp(self.submit_s)) / 86_400 if len(self) else 0.0
        return f"{len(self):,} jobs in {days:.1f} days{f' on {self.machine.name}' if self.machine.name else ''}"

    @property
    def interval_s(self) -> NDArray[np.float64]:
        """Seconds since the previous submission; 0 for the first job."""
        return np.diff(self.submit_s, prepend=self.submit_s[:1])


#: The names of the columns, in order.
COLUMNS = tuple(f.name for f in fields(Jobs))[:13]


def _column(name: str, values: Any, kind: Any, n: int) -> NDArray[Any]:
    """A column of numbers. Dates and durations are refused: numpy would take their nanoseconds for seconds."""
    where, array = "the job table", np.asarray(values)
    if array.dtype.kind in "mM" or (len(array) and hasattr(array.flat[0], "tzinfo")):
        raise TraceError(where, f"{name} holds dates or durations, not seconds; Jobs.from_pandas converts them")
    if array.shape != (n,):
        raise TraceError(where, f"{name} has the shape {array.shape}; submit_s has {n} values")
    try:
        numbers = array if array.dtype.kind in "iu" else array.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise TraceError(where, f"{name} holds no numbers ({error}); Jobs.from_pandas takes words") from error
    if kind is np.int64 and not np.isfinite(numbers).all():
        raise TraceError(where, f"{name} has missing values; -1 stands for an unknown one")
    if kind is np.int64 and numbers.dtype.kind == "f" and (numbers % 1 != 0).any():
        raise TraceError(where, f"{name} has the value {numbers[numbers % 1 != 0][0]:g}; it has whole numbers only")
    return np.ascontiguousarray(numbers, dtype=kind)


def _series(pandas: Any, jobs: Jobs, name: str) -> Any:
    """A column as a pandas array: words for codes, missing for -1."""
    values = getattr(jobs, name)
    if name == "status":
        words = [status.name.lower() for status in Status]
        codes = np.select([values == status for status in Status], range(len(words)), default=0)
        return pandas.Categorical.from_codes(codes, words)
    if name in jobs.names:
        words = list(jobs.names[name])
        return pandas.Categorical.from_codes(np.where((values >= 0) & (values < len(words)), values, -1), words)
    if values.dtype == np.float64:
        return np.where(values == -1, np.nan, values) if name != "submit_s" else values
    return pandas.arrays.IntegerArray(values.copy(), (values == -1) & (name != "id"))


def _arrow_array(arrow: Any, jobs: Jobs, name: str) -> Any:
    """A column as an Arrow array: words for codes, null for -1."""
    values = getattr(jobs, name)
    unknown = (values == -1) & (name not in ("id", "submit_s"))
    if name == "status":
        words = {int(status): status.name.lower() for status in Status}
        return arrow.array([words.get(int(value), "unknown") for value in values]).dictionary_encode()
    if name in jobs.names:
        words_of = list(jobs.names[name])
        unknown = (values < 0) | (values >= len(words_of))
        codes = arrow.array(np.where(unknown, 0, values).astype(np.int32), mask=unknown)
        return arrow.DictionaryArray.from_arrays(codes, arrow.array(words_of, arrow.string()))
    return arrow.array(values, mask=unknown)
