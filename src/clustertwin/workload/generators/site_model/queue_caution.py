"""How carefully users avoid a long queue: a log and a model -> the caution whose simulated waits are like the log's.

Users see the queue and submit when it is short. How much they look cannot be read from a log. So the model is sampled
with each caution and scheduled, and the one whose mean wait and mean slowdown are closest, the worse of the two, is
kept: one number, learnt from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_unit, machine_size
from clustertwin.workload.simulator import simulate

Floats = NDArray[np.float64]

MOST_TRIED_JOBS = 60_000  # of a sample; with longer logs the trials would take minutes
MOST_DRAWN_JOBS = 400_000  # in all trials
MOST_TRIALS = 16  # of a caution; waits of a small log differ much between draws
LEAST_WAIT_S = 1.0  # below it, the log has no queue to learn from
FIRST_SEED = 1000


class Caution(NamedTuple):
    """How a session chooses its start in a day."""

    offers: int  # starts that it chooses from
    passes: int = 1  # how often every session chooses, knowing the others
    whole_job: bool = False  # it looks at the whole time of its jobs, not only at their submission


CAUTIONS = (Caution(1), Caution(3), Caution(8, 2), Caution(8, 3, whole_job=True))
USUAL = 2


def learn_caution(log: Jobs, sample: Callable[[int, int, np.random.Generator], Jobs]) -> int:
    """The best index of `CAUTIONS`. `sample(caution, n, rng)` draws n jobs with this caution."""
    n = len(log)
    if n > MOST_TRIED_JOBS:
        return USUAL
    target = _waits(log, log)
    if target[0] < LEAST_WAIT_S:
        return USUAL
    trials = int(np.clip(MOST_DRAWN_JOBS // (n * len(CAUTIONS)), 1, MOST_TRIALS))
    distance = []
    for caution in range(len(CAUTIONS)):
        rngs = (np.random.default_rng(FIRST_SEED + trial) for trial in range(trials))
        drawn = np.mean([_waits(sample(caution, n, rng), log) for rng in rngs], axis=0)
        distance.append(float(np.abs(np.log(drawn / target)).max()))
    return int(np.argmin(distance))


def _waits(jobs: Jobs, log: Jobs) -> Floats:
    """(2,) mean wait and mean bounded slowdown on the machine of the log, FCFS with EASY backfilling."""
    unit = counted_unit(log)
    schedule = simulate(jobs, machine_size(log, unit), "fcfs", "easy", unit=unit)
    if not len(schedule):
        return np.ones(2)
    return np.array([max(float(schedule.wait_s.mean()), 1e-3), float(schedule.bounded_slowdown().mean())])
