"""What a policy sees and what it is: (request, now) -> score, lowest score first. No run time anywhere in sight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Request(NamedTuple):
    """One waiting job as its user asked for it. The simulator alone knows how long it will run."""

    submit_s: float
    request_s: float
    procs: float
    gpus: float
    user: float
    group: float
    queue: float
    usage_ratio: float  # the user's part of the machine's recent use, older use halved every week
    ready_s: float  # when enough processors are free for it at the latest, if nothing else starts


class Now(NamedTuple):
    """The moment of a decision and the state of the machine."""

    time_s: float
    free_procs: float
    free_gpus: float
    procs: float  # of the whole machine
    waiting: float  # jobs in the queue


#: Plain arithmetic and numpy functions: it is called with arrays (a policy that never varies is scored once for the
#: whole log) and compiled by numba for single jobs (a policy that varies is asked at every decision).
Score = Callable[[Request, Now], Any]


@dataclass(frozen=True, slots=True)
class Policy:
    """A named score; `varies` where the score of a waiting job changes with time or with the machine.

    With `weights`, the score is called as `score(request, now, weights)`: learned policies change weights without
    being compiled again. A score that never looks at `usage_ratio` may say so, and is asked faster: it then sees 0.
    """

    name: str
    score: Callable[..., Any]
    varies: bool = True
    weights: NDArray[np.float64] | None = None
    usage: bool = True
