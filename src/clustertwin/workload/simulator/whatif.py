"""What if: the live queue + a change of policy, machine or load -> when its jobs would start, and how sure that is.

Nobody knows how long waiting jobs will run, nor who comes next. A future draws both: run times as parts of the limits
as in a log of the past, and new jobs from a generator. Without a past there is one future, in which all jobs run to
their limits and nobody comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import COLUMNS, Jobs
from clustertwin.workload.simulator.intake import Unit
from clustertwin.workload.simulator.run import Backfill, simulate
from clustertwin.workload.simulator.squeue import Waiting

#: rng -> jobs submitted from now (second 0) on.
Coming = Callable[[np.random.Generator], Jobs]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way it could be."""

    name: str
    policy: str
    backfill: Backfill
    procs: int


@dataclass(frozen=True, slots=True)
class Answer:
    """When each waiting job starts, seconds from now: median, and what 4 of 5 futures lie between."""

    scenario: Scenario
    jobs: tuple[str, ...]  # the waiting jobs, by Slurm's ids
    start_s: NDArray[np.float64]  # (waiting,)
    early_s: NDArray[np.float64]
    late_s: NDArray[np.float64]
    mean_wait_s: float
    mean_wait_low_s: float
    mean_wait_high_s: float


def futures(
    waiting: Waiting, past: Jobs | None, coming: Coming | None, count: int, rng: np.random.Generator
) -> list[Jobs]:
    """The queue with run times and newcomers, drawn `count` times."""
    if past is None:
        return [waiting.jobs]
    known = (past.request_s > 0) & (past.run_s >= 0)
    if not known.any():
        raise SettingsError("the log of the past has no limits to compare run times with")
    part = np.sort(np.clip(past.run_s[known] / past.request_s[known], 0.0, 1.0))
    drawn = []
    for _ in range(count):
        queue = replace(waiting.jobs, run_s=_run_times(waiting, part, rng))
        drawn.append(_join(queue, coming(rng)) if coming else queue)
    return drawn


def answer(waiting: Waiting, scenario: Scenario, drawn: Sequence[Jobs], unit: Unit = "cpus") -> Answer:
    """One scenario in all futures."""
    asked = waiting.jobs.id[waiting.running :]
    names = waiting.names[waiting.running :]
    if not len(asked):
        nothing = np.zeros(0)
        return Answer(scenario, names, nothing, nothing, nothing, 0.0, 0.0, 0.0)
    starts = np.full((len(drawn), len(asked)), np.nan)
    for i, jobs in enumerate(drawn):
        schedule = simulate(jobs, scenario.procs, scenario.policy, scenario.backfill, unit=unit, kill_at_limit=True)
        place = {int(id): at for at, id in enumerate(schedule.jobs.id)}
        for k, id in enumerate(asked):
            if int(id) in place:  # a job larger than the machine never starts
                starts[i, k] = schedule.start_s[place[int(id)]]
    fits = ~np.isnan(starts).any(axis=0)
    early, middle, late = np.full((3, len(asked)), np.inf)
    if fits.any():
        early[fits], middle[fits], late[fits] = np.quantile(starts[:, fits], [0.1, 0.5, 0.9], axis=0)
    waits = starts[:, fits].mean(axis=1) if fits.any() else np.zeros(len(drawn))
    low, high = np.quantile(waits, [0.1, 0.9])
    return Answer(scenario, names, middle, early, late, float(waits.mean()), float(low), float(high))


def _run_times(waiting: Waiting, part: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Limits times parts of the past (sorted); what has run for a while already ran longer than the shorter parts."""
    ahead_s = -waiting.jobs.submit_s
    limit_s = waiting.jobs.request_s - ahead_s + waiting.elapsed_s
    shortest = np.searchsorted(part, waiting.elapsed_s / limit_s, side="right")
    longer = np.append(part, 1.0)  # what outlived the whole past runs to its limit
    drawn = longer[rng.integers(shortest, np.maximum(len(part), shortest + 1))]
    return np.maximum((limit_s * drawn - waiting.elapsed_s).round(), 1.0) + ahead_s


def _join(queue: Jobs, coming: Jobs) -> Jobs:
    """Newcomers behind the queue, with ids that are nobody else's."""
    ids = int(queue.id.max(initial=0)) + 1 + np.arange(len(coming))
    users = coming.user + 1 + int(queue.user.max(initial=0))
    columns: dict[str, Any] = {name: np.concatenate([getattr(queue, name), getattr(coming, name)]) for name in COLUMNS}
    columns["id"][len(queue) :], columns["user"][len(queue) :] = ids, users
    return replace(queue, **columns)
