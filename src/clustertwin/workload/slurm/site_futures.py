"""Other futures of a log: the same submissions with run times of similar jobs -> logs, and intervals of a change.

Both configurations see the same futures, so that their difference is that of the configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.site_comparison import ConfigChange, changes
from clustertwin.workload.slurm.site_simulation import SiteSchedule

LEAST = 5  # jobs that a class needs


def future_log(log: SlurmLog, rng: np.random.Generator) -> SlurmLog:
    """The log with each run time drawn from the jobs of the same user and request, or of the same user.

    A job whose user has few jobs keeps its run time.
    """
    runs_s = np.array([job.run_s for job in log.jobs])
    drawn = runs_s.copy()
    settled = ~np.isfinite(runs_s)
    for key in (_request_of, _user_of):
        classes: dict[object, list[int]] = {}
        for row, job in enumerate(log.jobs):
            if np.isfinite(runs_s[row]):
                classes.setdefault(key(job), []).append(row)
        for rows in classes.values():
            left = [row for row in rows if not settled[row]]
            if len(rows) >= LEAST and left:
                drawn[left] = runs_s[rng.choice(rows, len(left))]
                settled[left] = True
    jobs = [replace(job, run_s=float(run_s)) for job, run_s in zip(log.jobs, drawn, strict=True)]
    return SlurmLog(tuple(jobs), log.epoch_s, log.report)


def _request_of(job: SlurmJob) -> object:
    return job.user, job.limit_s, job.nodes_min, job.tasks


def _user_of(job: SlurmJob) -> object:
    return job.user


def changes_over_futures(
    pairs: Sequence[tuple[SiteSchedule, SiteSchedule]],
) -> dict[str, list[ConfigChange]]:
    """The changes of the first pair (the log as recorded), with the interval of each ratio over the other pairs."""
    first = changes(*pairs[0])
    ratios: dict[tuple[str, str], list[float]] = {}
    for old, new in pairs[1:]:
        for kind, rows in changes(old, new).items():
            for row in rows:
                ratios.setdefault((kind, row.name), []).append(row.ratio)
    return {
        kind: [_with_interval(row, ratios.get((kind, row.name), [])) for row in rows] for kind, rows in first.items()
    }


def _with_interval(row: ConfigChange, ratios: list[float]) -> ConfigChange:
    known: NDArray[np.float64] = np.array([ratio for ratio in ratios if np.isfinite(ratio)])
    if not len(known):
        return row
    low, high = np.quantile(known, [0.1, 0.9])
    return replace(row, ratio_low=float(low), ratio_high=float(high))
