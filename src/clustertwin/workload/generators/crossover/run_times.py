"""The jobs of a log -> new run times for them: near the old ones, on the same side of the limit, and rarely copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.generators.crossover.smoothing import SmoothingKernel, moved, widths
from clustertwin.workload.generators.job_rows import resolution_of
from clustertwin.workload.jobs import Jobs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REDRAWS = 3
CAPPED_JOBS = 3  # this many jobs with the same longest run time show a limit
SHORT_RUN = 0.25  # a job of four seconds moves by one second, not by two


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The run times of a log, and how far each may move."""

    run_s: Floats  # (job,)
    width_s: Floats  # (job,)
    limit_s: Floats  # (job,) -1: none, or the log repeats the run time as the limit
    shape: Ints  # (job,) equal for jobs with the same nodes, cpus, gpus and limit
    rows: Ints  # shapes and run times of all real jobs, sorted
    overrun_s: float  # the largest time by which a job exceeded its limit
    resolution_s: float

    @classmethod
    def of(cls, log: Jobs, kind: Ints, limit_s: Floats, over: NDArray[np.bool_]) -> RunTimes:
        """Jobs of a `kind` are similar; those that are `over` have reached their limit."""
        resolution_s = resolution_of(log.run_s)
        # How far a job exceeds its limit depends on the machine's epilogue, not on the user: all such jobs are a group.
        value = np.where(over, log.run_s - limit_s, log.run_s)
        group = np.where(over, -1 - log.status, group_codes(kind, over))
        width_s = widths(value, group, SmoothingKernel(short=SHORT_RUN), resolution_s)
        shape = group_codes(log.nodes, log.cpus, log.gpus, limit_s)
        rows = np.unique(_row_codes(shape, log.run_s, resolution_s))
        overrun_s = float(np.max(np.where(over, value, 0.0)))
        return cls(log.run_s, width_s, limit_s, shape, rows, overrun_s, resolution_s)

    def draw(self, which: Ints, rng: np.random.Generator) -> Floats:
        """A run time for each of these jobs. A longer job that is a copy is drawn again."""
        known_s, limit_s, width_s = self.run_s[which], self.limit_s[which], self.width_s[which]
        over = (limit_s > 0) & (known_s >= limit_s)
        limit_s = np.where(limit_s > 0, limit_s, _cap_s(self.run_s))
        value_s = np.where(over, known_s - limit_s, known_s)
        room_s = np.where(over, self.overrun_s - value_s, limit_s - value_s)
        # No job becomes shorter than the shortest real job, and only a job that ran for 0 s stays at 0 s.
        least_s = np.where(over | (value_s <= 0), 0.0, self.run_s[self.run_s > 0].min(initial=np.inf))
        # Every number of seconds below it is taken by some real job: drawing again would push jobs out of it.
        short = ~over & (value_s < 2 * self.resolution_s / SHORT_RUN)
        run_s, todo = np.empty(len(which)), np.arange(len(which))
        for _ in range(REDRAWS):
            reach_s = np.minimum(width_s[todo], room_s[todo])
            drawn_s = moved(value_s[todo], reach_s, self.resolution_s, rng, least_s[todo])
            drawn_s = np.clip(drawn_s, 0.0, value_s[todo] + room_s[todo])
            run_s[todo] = np.round(np.where(over[todo], limit_s[todo] + drawn_s, drawn_s), 3)
            copied = np.isin(_row_codes(self.shape[which[todo]], run_s[todo], self.resolution_s), self.rows)
            todo = todo[copied & ~short[todo]]
            if not len(todo):
                break
        return run_s


def group_codes(*columns: NDArray[Any]) -> Ints:
    """One number for each distinct row."""
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel()


def _cap_s(run_s: Floats) -> float:
    """The longest run time, if several jobs have it: then it is a limit that the log does not state."""
    longest_s = float(run_s.max())
    return longest_s if np.count_nonzero(run_s == longest_s) >= CAPPED_JOBS else np.inf


def _row_codes(shape: Ints, run_s: Floats, resolution_s: float) -> Ints:
    """One number for the shape and the run time of a job."""
    return shape * 2**40 + np.round(run_s / resolution_s).astype(np.int64)
