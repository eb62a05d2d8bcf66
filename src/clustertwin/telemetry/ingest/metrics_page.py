"""Read a node's /metrics pages: exposition text of our exporter or of node_exporter -> one `NodeReading` each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import JOB
from clustertwin.core.errors import ExpositionError
from clustertwin.telemetry.ingest.counters import MODES, NODE_THREADS, JobCpus, NodeReading, short_name
from clustertwin.telemetry.ingest.dialects import DIALECTS, Dialect, jobs_of, thread_number
from clustertwin.telemetry.ingest.exposition_parser import MetricSample
from clustertwin.telemetry.ingest.incremental_parser import IncrementalParser
from clustertwin.telemetry.ingest.node_channels import OperandSlots

#: Of one node; our exporter exposes 512.
MOST_JOBS = 1024
#: An address may get another node this often in this time.
MOST_NAMES, RENAMED_S = 3, 600.0
_OF_JOBS = "twin_job_"


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Where the series that we read are among those of a page; -1 where one is missing."""

    node: str
    cpus: tuple[int, ...]
    modes: tuple[str, ...]
    seconds: NDArray[np.intp]  # (cpu, mode)
    operands: OperandSlots
    jobs: tuple[JobCpus, ...]
    job_operands: tuple[OperandSlots, ...]  # as `jobs`

    def reading(self, node: str, time_s: float, values: NDArray[np.float64]) -> NodeReading:
        """The values (series,) of all series at one instant -> a reading."""
        known = np.append(values, np.nan)  # slot -1 reads NaN
        return NodeReading(
            node=node,
            time_s=time_s,
            cpus=self.cpus,
            seconds=known[self.seconds],
            modes=self.modes,
            operands=self.operands.read(known),
            jobs=self.jobs,
            job_operands=np.array([slots.read(known) for slots in self.job_operands]) if self.jobs else None,
        )


class PageReader:
    """The pages of one node. The first page, and each page whose lines have changed, costs more than the others.

    Without a `node` the name comes from the page; it stays empty if the page has none. If a later page has another
    name, another node answers: that is an error once, and the pages after it are of the new node. If it happens often,
    as with an address of several nodes, it stays an error.
    """

    def __init__(self, node: str = "", where: object = "exposition") -> None:
        self.node, self.where = node, where
        self._is_given = bool(node)
        self._renamed_s: list[float] = []
        self.series: tuple[MetricSample, ...] = ()
        self._parser = IncrementalParser(where)
        self._layout: PageLayout | None = None

    @property
    def exporter_node(self) -> str:
        """The name on the last page; empty if it has none."""
        return self._layout.node if self._layout else ""

    def read(self, text: bytes, time_s: float) -> NodeReading:
        """The reading of a page that was requested at `time_s`; ExpositionError if it has no thread's counters."""
        values = self._parser.read(text)
        if self._parser.series is not self.series or self._layout is None:
            layout = _layout(self._parser.series, self.where)
            self._take_name(layout.node, time_s)
            self._layout, self.series = layout, self._parser.series
        return self._layout.reading(self.node, time_s, values)

    def _take_name(self, name: str, time_s: float) -> None:
        before = self.node
        if self._is_given or name in ("", before):
            return
        if before:
            self._renamed_s = [at_s for at_s in self._renamed_s if abs(time_s - at_s) < RENAMED_S]
            if len(self._renamed_s) >= MOST_NAMES:
                raise ExpositionError(self.where, f"several nodes answer here: {before}, and now {name}")
            self._renamed_s.append(time_s)
        self.node = name
        if before:
            raise ExpositionError(self.where, f"it says that it is {name}, and it was {before} before")


def _layout(series: tuple[MetricSample, ...], where: object) -> PageLayout:
    names = {sample.name for sample in series}
    for dialect in DIALECTS.values():
        if dialect.cpu in names:
            try:
                return layout_in(series, dialect)
            except ValueError as reason:
                raise ExpositionError(where, str(reason)) from None
    wanted = " or ".join(dialect.cpu for dialect in DIALECTS.values())
    raise ExpositionError(where, f"no {wanted} among its {len(names)} metrics")


def layout_in(series: tuple[MetricSample, ...], dialect: Dialect) -> PageLayout:
    """The layout of a page in one dialect; ValueError if a label is not what it should be."""
    slot: dict[tuple[int, str], int] = {}
    allocated: list[tuple[str, int]] = []
    node = ""
    for i, (name, labels, value, _) in enumerate(series):
        if name == dialect.cpu:
            slot[thread_number(labels), labels.get("mode", "")] = i
        elif name == dialect.job_cpu:
            if value > 0:
                allocated.append((short_name(labels.get("jobid", ""), "job"), thread_number(labels)))
        elif name == dialect.info:
            node = short_name(labels.get(dialect.info_label, ""), "node")
    cpus = tuple(sorted({cpu for cpu, _ in slot}))
    if len(cpus) > NODE_THREADS:
        raise ValueError(f"{len(cpus)} hardware threads; the limit is {NODE_THREADS}")
    present = {mode for _, mode in slot}
    modes = tuple(mode for mode in MODES if mode in present)
    jobs = jobs_of(allocated)
    return PageLayout(
        node=node,
        cpus=cpus,
        modes=modes,
        seconds=np.array([[slot.get((cpu, mode), -1) for mode in modes] for cpu in cpus], dtype=np.intp),
        operands=OperandSlots([(sample.name, sample.labels) for sample in series], dialect.name),
        jobs=jobs,
        job_operands=_job_operands(series, jobs, dialect),
    )


def _job_operands(
    series: tuple[MetricSample, ...], jobs: tuple[JobCpus, ...], dialect: Dialect
) -> tuple[OperandSlots, ...]:
    """Where the operands of each job's channels are among the series of the page."""
    if len(jobs) > MOST_JOBS:
        raise ValueError(f"{len(jobs)} jobs; the limit is {MOST_JOBS}")
    of_job: dict[str, dict[int, tuple[str, dict[str, str]]]] = {job.job: {} for job in jobs}
    for i, (name, labels, _, _) in enumerate(series):
        job = labels.get("jobid", "")
        if job in of_job and name.startswith(_OF_JOBS):
            of_job[job][i] = name, labels
    return tuple(OperandSlots(list(found.values()), dialect.name, JOB, list(found)) for found in of_job.values())
