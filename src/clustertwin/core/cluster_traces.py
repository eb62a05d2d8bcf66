"""The traces of several nodes as one noun: Traces <-> a table; an xarray Dataset, a picture in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustertwin.core.channels import CPU
from clustertwin.core.errors import InputError
from clustertwin.core.extras import require
from clustertwin.core.formatting import counted
from clustertwin.core.tables import ColumnTable
from clustertwin.core.traces import JobSpan, Trace

WHERE = "the DataFrame"
RATIOS = CPU.names  # of which `other` may be left out
ROUNDING = 0.01  # that ratios, and their sum, may be beyond their bounds
OPTIONAL = ("node", "job", "anomaly", "other")


@dataclass(frozen=True, slots=True, repr=False)
class ClusterTraces(ColumnTable):
    """One trace for each node, over the same seconds."""

    nodes: tuple[Trace, ...]

    @staticmethod
    def of(traces: Iterable[Trace]) -> ClusterTraces:
        return ClusterTraces(tuple(sorted(traces, key=lambda trace: trace.node)))

    @staticmethod
    def from_pandas(frame: Any) -> ClusterTraces:
        """Telemetry of your own: a row for each thread and second, with its time, cpu, user, system and iowait.

        `time_s` are epoch seconds, or `time` are dates. `node`, `job` and `other` are used if they are there. A second
        without a row is unknown.

        >>> import pandas
        >>> rows = {"time_s": [100, 101, 103], "cpu": 0, "user": 0.9, "system": 0.1, "iowait": 0.0}
        >>> ClusterTraces.from_pandas(pandas.DataFrame(rows)).nodes[0].valid.tolist()
        [[True, True, False, True]]
        """
        return ClusterTraces.of(traces_from_frame(frame))

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Trace]:
        return iter(self.nodes)

    @property
    def jobs(self) -> tuple[JobSpan, ...]:
        """The jobs that ran, one entry for each node and label."""
        return tuple(span for trace in self.nodes for span in trace.spans)

    def caption(self) -> str:
        threads = sum(len(trace.cpus) for trace in self.nodes)
        seconds = max((trace.end_s for trace in self.nodes), default=0) - min(
            (trace.start_s for trace in self.nodes), default=0
        )
        jobs = len({span.job for span in self.jobs})
        return f"{counted(len(self), 'node')}, {counted(threads, 'thread')}, {seconds:,} s, {counted(jobs, 'job')}"

    def table(self) -> Mapping[str, Any]:
        """A row for each thread and known second: time_s, node, cpu, the channels, job and anomaly."""
        from clustertwin.core.windows import cut

        parts = [cut(trace, length_s=trace.interval_s) for trace in self.nodes]
        names = self.nodes[0].schema.names if self.nodes else ()
        columns = {name: [getattr(part, name) for part in parts] for name in ("node", "cpu", "job", "anomaly")}
        ratios = {name: [part.values[:, 0, i] for part in parts] for i, name in enumerate(names)}
        joined = {"time_s": [part.start_s for part in parts], **columns, **ratios}
        return {name: np.concatenate(arrays) if arrays else np.empty(0) for name, arrays in joined.items()}

    def to_xarray(self) -> Any:
        """A Dataset: `ratio` (thread, time, channel), NaN where unknown, with coordinates node and cpu."""
        xarray = require("xarray", "xarray")
        first = self.nodes[0]
        if any((trace.start_s, trace.end_s) != (first.start_s, first.end_s) for trace in self.nodes):
            raise ValueError("the nodes do not have the same seconds")
        ratio = np.concatenate([np.where(trace.valid[..., None], trace.values, np.nan) for trace in self.nodes])
        return xarray.Dataset(
            {"ratio": (("thread", "time_s", "channel"), ratio)},
            coords={
                "node": ("thread", np.repeat([trace.node for trace in self.nodes], [len(t.cpus) for t in self.nodes])),
                "cpu": ("thread", np.concatenate([trace.cpus for trace in self.nodes])),
                "time_s": np.arange(first.start_s, first.end_s, first.interval_s),
                "channel": list(first.schema.names),
            },
        )


def traces_from_frame(frame: Any) -> list[Trace]:
    """One trace for each node. A row is a thread in one interval; an interval without a row is unknown.

    Columns: time_s (epoch seconds) or time (dates; without a time zone they are UTC), cpu, user, system and iowait as
    ratios, and if there are any node, job and other.
    """
    pandas = require("pandas", "pandas")
    rows = _with_seconds(pandas, frame)
    missing = {"time_s", "cpu", *RATIOS} - set(OPTIONAL) - set(rows.columns)
    if missing:
        needed = "time_s or time, cpu, user, system and iowait"
        raise InputError(WHERE, f"no column {', '.join(sorted(missing))}; it needs {needed}")
    if not len(rows):
        raise InputError(WHERE, "it has no rows")
    if "other" not in rows:
        rows = rows.assign(other=1 - rows[list(RATIOS[:-1])].sum(axis=1))
    ratios = rows[list(RATIOS)].to_numpy(np.float64)
    known = ~np.isnan(ratios).any(axis=1)
    wrong = known & ((ratios < -ROUNDING).any(1) | (abs(ratios.sum(1) - 1) > ROUNDING))
    if wrong.any():
        row = int(wrong.argmax())
        shown = ", ".join(f"{name} {value:g}" for name, value in zip(RATIOS, ratios[row], strict=True))
        raise InputError(WHERE, f"row {row}: {shown}; ratios are between 0 and 1 and sum to one")
    rows = rows.assign(node=rows["node"].astype(str) if "node" in rows else "node")[known]
    step_s = _interval_s(rows)
    return [_trace(node, part, step_s) for node, part in rows.groupby("node", sort=True)]


def _with_seconds(pandas: Any, frame: Any) -> Any:
    if "time_s" in frame or "time" not in frame:
        return frame
    dates = pandas.to_datetime(frame["time"], utc=True)
    return frame.assign(time_s=(dates - pandas.Timestamp(0, tz="UTC")) // pandas.Timedelta(1, "s"))


def _interval_s(rows: Any) -> int:
    """The smallest step between two times of a thread; 1 if no thread has two."""
    steps_s = rows.sort_values("time_s").groupby(["node", "cpu"])["time_s"].diff().dropna()
    if (steps_s == 0).any():
        raise InputError(WHERE, "a thread has two rows for one time")
    smallest_s = float(steps_s.min()) if len(steps_s) else 1.0
    if smallest_s != round(smallest_s) or (steps_s % smallest_s).any():
        raise InputError(WHERE, f"times must be whole multiples of one interval; the smallest is {smallest_s:g} s")
    return int(smallest_s)


def _trace(node: str, rows: Any, step_s: int) -> Trace:
    start_s, cpus = int(rows["time_s"].min()), np.unique(rows["cpu"].to_numpy(np.int64))
    column = ((rows["time_s"] - start_s) // step_s).to_numpy(np.int64)
    row = np.searchsorted(cpus, rows["cpu"].to_numpy(np.int64))
    values = np.zeros((len(cpus), int(column.max()) + 1, len(RATIOS)), np.float32)
    valid = np.zeros(values.shape[:2], np.bool_)
    values[row, column] = rows[list(RATIOS)].to_numpy(np.float32).clip(0, 1)
    valid[row, column] = True
    return Trace(node, tuple(cpus.tolist()), start_s, CPU, values, valid, tuple(_spans(node, rows, step_s)), step_s)


def _spans(node: str, rows: Any, step_s: int) -> list[JobSpan]:
    if "job" not in rows:
        return []
    jobs = rows[rows["job"].notna() & (rows["job"].astype(str) != "")]
    return [
        JobSpan(
            str(job),
            node,
            tuple(np.unique(part["cpu"].to_numpy(np.int64)).tolist()),
            float(part["time_s"].min()),
            float(part["time_s"].max()) + step_s,
        )
        for job, part in jobs.groupby("job", sort=True)
    ]
