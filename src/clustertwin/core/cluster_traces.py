"""The traces of several nodes as one noun: Traces -> a table, an xarray Dataset, a picture in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustertwin.core.extras import require
from clustertwin.core.tables import ColumnTable
from clustertwin.core.traces import JobSpan, Trace


@dataclass(frozen=True, slots=True, repr=False)
class ClusterTraces(ColumnTable):
    """One trace for each node, over the same seconds."""

    nodes: tuple[Trace, ...]

    @staticmethod
    def of(traces: Iterable[Trace]) -> ClusterTraces:
        return ClusterTraces(tuple(sorted(traces, key=lambda trace: trace.node)))

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
        return f"{len(self)} nodes, {threads} threads, {seconds:,} s, {jobs} jobs"

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
