"""The contract of scheduling policies: (request, now) -> score; the job with the lowest score goes first.

A request has no run time, because a scheduler does not know it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.policies.trained_range import TrainedRange


class Request(NamedTuple):
    """One waiting job, as its user requested it."""

    submit_s: float
    request_s: float  # the time limit
    procs: float
    gpus: float
    user: float
    group: float
    queue: float
    usage_ratio: float  # the user's share of the recent processor time, with a half-life of a week
    ready_s: float  # when enough processors are expected to be free for this job if no other job starts


class Now(NamedTuple):
    """The time of a decision and the state of the machine."""

    time_s: float
    free_procs: float
    free_gpus: float
    procs: float  # of the machine
    waiting: float  # jobs in the queue


@dataclass(frozen=True, slots=True)
class Policy:
    """A named score function.

    A score uses arithmetic and numpy functions only. If `varies` is false, it is called once, with arrays of all jobs.
    Otherwise numba compiles it, and it is called for single jobs at every decision: set `varies` if the score of a
    waiting job changes with time or with the state of the machine.

    With `weights`, the function is called as `score(request, now, weights)`, so that new weights need no compilation.
    A score that does not read `usage_ratio` can set `usage` to false: it then reads 0, and the simulation is faster.
    """

    name: str
    score: Callable[..., Any]
    varies: bool = True
    weights: NDArray[np.float64] | None = None
    usage: bool = True
    trained: TrainedRange | None = None  # what a learned policy has seen
