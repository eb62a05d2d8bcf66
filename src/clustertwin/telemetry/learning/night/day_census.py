"""What a day contained and what was excluded from it: traces and moments -> counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Trace, Windows
from clustertwin.telemetry.learning.night.training_windows import usable_threads
from clustertwin.telemetry.moments.moment import LENGTH_S, WINDOW_S, Moment


@dataclass(frozen=True, slots=True)
class DayCensus:
    start_s: int
    end_s: int  # of the data; both are 0 if there is none
    seen: dict[str, float] = field(default_factory=dict)  # node -> valid part of its seconds
    threads: int = 0
    windows: int = 0  # usable windows, over all roles
    job_types: dict[str, int] = field(default_factory=dict)  # windows of each job type, if the data names types
    left_out_s: dict[str, int] = field(default_factory=dict)  # reason -> excluded thread-seconds
    independent_windows: int = 0  # usable windows of which no two share a second of a thread
    jobs: int = 0  # different jobs with a usable window

    @property
    def thread_hours(self) -> float:
        """The evidence of the day: usable time that was counted once."""
        return self.independent_windows * WINDOW_S / 3600

    @property
    def evidence(self) -> str:
        """The evidence as a person reads it."""
        programs = f", {len(self.job_types)} programs" if self.job_types else ""
        jobs = f"{self.jobs} jobs{programs}, " if self.jobs else ""
        return f"{self.thread_hours:.1f} thread-hours ({jobs}{self.independent_windows} independent windows)"


class CensusCounter:
    """Counts while the moments of a day are sampled."""

    def __init__(self) -> None:
        self.excluded_s: Counter[str] = Counter()  # reason -> thread-seconds
        self._windows = 0
        self._job_types: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()  # the rest by node
        self._valid_seconds: Counter[str] = Counter()
        self._cpus: Counter[str] = Counter()
        self._independent = 0
        self._counted_s: dict[str, NDArray[np.int64]] = {}  # node -> (cpu,) the end of the last window that was counted
        self._jobs: set[str] = set()

    def add_trace(self, trace: Trace) -> None:
        self._seconds[trace.node] += len(trace.cpus) * LENGTH_S
        self._valid_seconds[trace.node] += int(trace.valid.sum())
        self._cpus[trace.node] = max(self._cpus[trace.node], len(trace.cpus))

    def add_moment(self, moment: Moment, labels: Windows) -> None:
        usable = usable_threads(moment)
        self._windows += int(usable.sum())
        self._jobs.update(moment.jobs[job] for job in np.unique(moment.job[usable & (moment.job >= 0)]).tolist())
        for number, node in enumerate(moment.nodes):
            self._count_independent(node, moment.cpu[usable & (moment.node == number)], moment.end_s)
        self.excluded_s["masked"] += int((~moment.valid).sum())
        self.excluded_s["a job's edge"] += int((~moment.settled).sum()) * WINDOW_S
        self._job_types.update(name for name in labels.job_type[usable].tolist() if name not in ("", "mixed"))

    def _count_independent(self, node: str, cpus: NDArray[np.int32], end_s: int) -> None:
        """Count the windows of these threads that begin after the last counted one has ended."""
        counted_s = self._counted_s.get(node, np.zeros(0, np.int64))
        missing = int(cpus.max(initial=-1)) + 1 - len(counted_s)
        if missing > 0:
            counted_s = np.append(counted_s, np.full(missing, -WINDOW_S, np.int64))
        fresh = cpus[np.abs(end_s - counted_s[cpus]) >= WINDOW_S]
        counted_s[fresh] = end_s
        self._counted_s[node] = counted_s
        self._independent += len(fresh)

    def census(self, start_s: int, end_s: int) -> DayCensus:
        return DayCensus(
            start_s,
            end_s,
            seen={node: self._valid_seconds[node] / self._seconds[node] for node in sorted(self._seconds)},
            threads=self._cpus.total(),
            windows=self._windows,
            job_types=dict(self._job_types),
            left_out_s={reason: seconds for reason, seconds in self.excluded_s.items() if seconds},
            independent_windows=self._independent,
            jobs=len(self._jobs),
        )
