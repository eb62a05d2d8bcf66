"""Forecasts of starts as the service publishes them: the document of `twin sched start` -> a board, judged later.

A forecast is judged once its job runs: the first forecast of each job counts. All counts begin with the service.
What the judged forecasts missed widens the intervals of the next ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from clustertwin.core.interval_scale import IntervalScale, ScaleLearner
from clustertwin.core.start_forecast import StartAnswer

#: Jobs whose first forecast is remembered until they start.
MOST_REMEMBERED = 20_000
#: Of the newest judged forecasts, for the two ratios.
RECENT = 1_000
#: Slurm counts whole seconds.
RESOLUTION_S = 1.0


@dataclass(frozen=True, slots=True)
class StartRecord:
    """How good first forecasts were since the service started."""

    forecasts: int = 0  # jobs that were forecast
    judged: int = 0  # of them, those that were seen running
    lost: int = 0  # of them, those that left the queue unseen: cancelled, held, or too short
    within_minute_ratio: float = float("nan")  # of the newest judged ones: the likeliest start was right within 60 s
    interval_ratio: float = float("nan")  # of the newest judged ones: the start lay in the 80 % interval


@dataclass(frozen=True, slots=True)
class StartBoard:
    """The newest forecasts, the first to start first."""

    asked_s: float = 0.0  # Unix time at which Slurm was asked; 0: never
    waiting: tuple[StartAnswer, ...] = ()
    held: int = 0  # jobs that no scheduling decision can start
    notes: tuple[str, ...] = ()  # what had no part in the forecast
    problem: str = ""  # why there is no newer forecast
    took_s: float = float("nan")
    record: StartRecord = StartRecord()

    def age_s(self, now_s: float) -> float:
        """Since Slurm was asked; nan if it never was."""
        return now_s - self.asked_s if self.asked_s else float("nan")


def waiting_jobs(document: Mapping[str, Any]) -> tuple[StartAnswer, ...]:
    """The starts in a document of `twin sched start --json`."""
    names = [each.name for each in fields(StartAnswer)]
    return tuple(StartAnswer(**{name: row[name] for name in names}) for row in document["starts"])


class StartJudge:
    """Remembers the first forecast of each job until the job runs."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, StartAnswer]] = {}  # job -> when it was asked about, before widening
        self._intervals_s: dict[str, tuple[float, float]] = {}  # job -> the interval that was published
        self._learner = ScaleLearner()
        self._right: deque[tuple[bool, bool]] = deque(maxlen=RECENT)
        self._forecasts = self._judged = self._lost = 0

    def look(self, document: Mapping[str, Any]) -> StartRecord:
        """Judge the forecasts of jobs that run by now, and remember those of new ones."""
        asked_s, waiting = float(document["asked_s"]), waiting_jobs(document)
        for row in document["running_jobs"]:
            if row["job"] in self._first:
                self._judge(row["job"], asked_s - float(row["elapsed_s"]))
        still = {job.job for job in waiting}
        for name in [name for name in self._first if name not in still]:
            del self._first[name], self._intervals_s[name]
            self._lost += 1
        scale = self._learner.scale()
        for job in waiting:
            if job.job not in self._first and len(self._first) < MOST_REMEMBERED:
                wide = _widened(job, scale)
                self._first[job.job], self._intervals_s[job.job] = (asked_s, job), (wide.p10_s, wide.p90_s)
                self._forecasts += 1
        return self.record()

    def widened(self, waiting: tuple[StartAnswer, ...]) -> tuple[StartAnswer, ...]:
        """Forecasts with intervals that would have held on the newest judged ones; unchanged while these are few."""
        scale = self._learner.scale()
        return tuple(_widened(job, scale) for job in waiting)

    def _judge(self, name: str, start_s: float) -> None:
        (asked_s, job), (low_s, high_s) = self._first.pop(name), self._intervals_s.pop(name)
        after_s = start_s - asked_s
        near = abs(after_s - job.likeliest_s) <= 60.0
        inside = low_s - RESOLUTION_S <= after_s <= high_s + RESOLUTION_S
        self._right.append((near, inside))
        self._learner.add(job.p10_s, job.p50_s, job.p90_s, after_s)
        self._judged += 1

    def record(self) -> StartRecord:
        ratios = [sum(column) / len(self._right) for column in zip(*self._right, strict=True)] or [float("nan")] * 2
        return StartRecord(self._forecasts, self._judged, self._lost, *ratios)


def _widened(job: StartAnswer, scale: IntervalScale | None) -> StartAnswer:
    if scale is None:
        return job
    low_s, high_s = scale.interval_s(job.p10_s, job.p50_s, job.p90_s)
    return replace(job, p10_s=low_s, p90_s=high_s)
