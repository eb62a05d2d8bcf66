"""A node whose series are pushed, and the values of one of its rows -> a `NodeReading`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.formatting import visible
from clustertwin.telemetry.ingest.counters import NAME_CHARS, JobCpus, NodeReading, short_name
from clustertwin.telemetry.ingest.dialects import Dialect
from clustertwin.telemetry.ingest.pushed.pushed_layout import OWNER_METRIC, PushedLayout, layout_of


@dataclass(slots=True)
class PushedNode:
    """One target of one sender."""

    sender: str
    instance: str
    dialect: Dialect
    target: frozenset[tuple[str, str]]  # the labels that all of its series have
    place: int  # in the arrays of nodes
    columns: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # name and own labels of each series
    numbers: list[int] = field(default_factory=list)  # of the same series
    threads: Counter[str] = field(default_factory=Counter)  # the number of series of each thread
    layout: PushedLayout | str | None = None  # None: the columns have changed; a text: why they cannot be used
    jobs: tuple[bytes, tuple[JobCpus, ...]] = (b"", ())  # the last ones, and the samples that gave them their threads
    heard_s: float = 0.0  # when the first sample of its last returned row arrived

    @property
    def key(self) -> tuple[str, str, str]:
        return self.sender, self.instance, self.dialect.name

    @property
    def where(self) -> str:
        return f"{visible(self.instance[:NAME_CHARS])} (pushed by {self.sender})"

    def reading(self, time_s: float, values: NDArray[np.float64], owners: dict[str, int]) -> NodeReading:
        """The reading of a row, from the value of each column; ValueError if the columns cannot be used.

        When other jobs run than in the last row, their owners are put into `owners`.
        """
        if self.layout is None:
            self.layout, self.jobs = self._layout_or_reason(), (b"", ())
        if isinstance(self.layout, str):
            raise ValueError(self.layout)
        layout = self.layout
        name = short_name(layout.page.node or self.instance.rpartition(":")[0] or self.instance, "node")
        reading = layout.page.reading(name, time_s, values)
        jobs = layout.jobs(values, self.jobs)
        if jobs is not self.jobs[1]:
            self.jobs = (values[layout.allocated] > 0).tobytes(), jobs
            owners.update(self._owners(values))
        if not jobs:
            return reading
        known = np.append(values, np.nan)
        return replace(reading, jobs=jobs, job_operands=np.array([layout.operands[j.job].read(known) for j in jobs]))

    def _layout_or_reason(self) -> PushedLayout | str:
        """The layout of the columns, or why there is none. Both are found once, not for every row."""
        try:
            return layout_of(self.columns, self.dialect)
        except ValueError as error:
            return str(error)

    def _owners(self, values: NDArray[np.float64]) -> dict[str, int]:
        """Job -> user id."""
        return {
            labels.get("jobid", "")[:NAME_CHARS]: int(value)
            for (name, labels), value in zip(self.columns, values.tolist(), strict=True)
            if name == OWNER_METRIC and 0 <= value < 2**32
        }
