"""Read a node's /metrics pages: exposition text, of our exporter or of node_exporter -> one `Reading` each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import ExpositionError
from clustertwin.telemetry.ingest.counters import MODES, JobCpus, Reading
from clustertwin.telemetry.ingest.dialects import DIALECTS, Dialect, jobs_of, thread_number
from clustertwin.telemetry.ingest.exposition_parser import Limits, Sample
from clustertwin.telemetry.ingest.incremental_parser import Rescan


@dataclass(frozen=True, slots=True)
class _Slots:
    """Where among a page's series the interesting ones are; -1 where there is none."""

    node: str
    cpus: tuple[int, ...]
    modes: tuple[str, ...]
    seconds: NDArray[np.intp]  # (cpu, mode)
    memory_total: int
    memory_available: int
    io_stalled: int
    jobs: tuple[JobCpus, ...]


class Pages:
    """The pages of one node. The first page, and one whose lines have changed, costs more than the others.

    Where no `node` is given it is the name that the page tells, or stays empty.
    """

    def __init__(self, node: str = "", where: object = "exposition", limits: Limits | None = None) -> None:
        self.node, self.where = node, where
        self.series: tuple[Sample, ...] = ()
        self._rescan = Rescan(where, limits)
        self._slots: _Slots | None = None

    def read(self, text: bytes, time_s: float) -> Reading:
        """What the page says, as of `time_s`; a page without any thread's counters is an `ExpositionError`."""
        values = self._rescan.read(text)
        if self._rescan.series is not self.series or self._slots is None:
            self._slots = _find(self._rescan.series, self.where)
            self.series = self._rescan.series
            self.node = self.node or self._slots.node
        slots, known = self._slots, np.append(values, np.nan)  # slot -1 reads NaN
        return Reading(
            node=self.node,
            time_s=time_s,
            cpus=slots.cpus,
            seconds=known[slots.seconds],
            modes=slots.modes,
            memory_used_ratio=_used(float(known[slots.memory_total]), float(known[slots.memory_available])),
            io_stalled_s=float(known[slots.io_stalled]),
            jobs=slots.jobs,
        )


def _used(total: float, available: float) -> float:
    return 1 - available / total if total > 0 else np.nan


def _find(series: tuple[Sample, ...], where: object) -> _Slots:
    names = {sample.name for sample in series}
    for dialect in DIALECTS.values():
        if dialect.cpu in names:
            try:
                return _find_in(series, dialect)
            except ValueError as reason:
                raise ExpositionError(where, str(reason)) from None
    wanted = " or ".join(dialect.cpu for dialect in DIALECTS.values())
    raise ExpositionError(where, f"no {wanted} among its {len(names)} metrics")


def _find_in(series: tuple[Sample, ...], dialect: Dialect) -> _Slots:
    slot: dict[tuple[int, str], int] = {}
    single: dict[str, int] = {}
    allocated: list[tuple[str, int]] = []
    node = ""
    for i, (name, labels, value, _) in enumerate(series):
        if name == dialect.cpu:
            slot[thread_number(labels), labels.get("mode", "")] = i
        elif name == dialect.job_cpu:
            if value > 0:
                allocated.append((labels.get("jobid", ""), thread_number(labels)))
        elif name == dialect.info:
            node = labels.get(dialect.info_label, "")
        elif name != dialect.io_stalled or all(labels.get(key) == text for key, text in dialect.io_stalled_labels):
            single[name] = i
    cpus = tuple(sorted({cpu for cpu, _ in slot}))
    modes = tuple(mode for mode in MODES if any(known == mode for _, known in slot))
    return _Slots(
        node=node,
        cpus=cpus,
        modes=modes,
        seconds=np.array([[slot.get((cpu, mode), -1) for mode in modes] for cpu in cpus], dtype=np.intp),
        memory_total=single.get(dialect.memory_total, -1),
        memory_available=single.get(dialect.memory_available, -1),
        io_stalled=single.get(dialect.io_stalled, -1),
        jobs=jobs_of(allocated),
    )
