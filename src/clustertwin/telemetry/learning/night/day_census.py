"""What a day contained and what was excluded from it: traces and moments -> counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

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


class CensusCounter:
    """Counts while the moments of a day are sampled."""

    def __init__(self) -> None:
        self.excluded_s: Counter[str] = Counter()  # reason -> thread-seconds
        self._windows = 0
        self._job_types: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()  # the rest by node
        self._valid_seconds: Counter[str] = Counter()
        self._cpus: Counter[str] = Counter()

    def add_trace(self, trace: Trace) -> None:
        self._seconds[trace.node] += len(trace.cpus) * LENGTH_S
        self._valid_seconds[trace.node] += int(trace.valid.sum())
        self._cpus[trace.node] = max(self._cpus[trace.node], len(trace.cpus))

    def add_moment(self, moment: Moment, labels: Windows) -> None:
        usable = usable_threads(moment)
        self._windows += int(usable.sum())
        self.excluded_s["masked"] += int((~moment.valid).sum())
        self.excluded_s["a job's edge"] += int((~moment.settled).sum()) * WINDOW_S
        self._job_types.update(name for name in labels.job_type[usable].tolist() if name not in ("", "mixed"))

    def census(self, start_s: int, end_s: int) -> DayCensus:
        return DayCensus(
            start_s,
            end_s,
            seen={node: self._valid_seconds[node] / self._seconds[node] for node in sorted(self._seconds)},
            threads=self._cpus.total(),
            windows=self._windows,
            job_types=dict(self._job_types),
            left_out_s={reason: seconds for reason, seconds in self.excluded_s.items() if seconds},
        )
