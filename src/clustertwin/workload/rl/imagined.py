"""Jobs to train on that never were: a log, what is held out of it and a generator -> a synthetic log of any length.

The generator learns from those jobs only that may be trained on. Where some are held out in between, time closes over
them: the next job comes as long after the last one as it came after the job before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.generators import make
from clustertwin.workload.jobs import Jobs


def usable(jobs: Jobs, held_out: Sequence[tuple[int, int]]) -> Jobs:
    """The log without the ranges of jobs `held_out` (first, one past the last).

    >>> usable(Jobs.build([0, 10, 20, 40], [1, 1, 1, 1]), [(1, 3)]).submit_s.tolist()
    [0.0, 20.0]
    """
    kept = np.ones(len(jobs), dtype=bool)
    for first, last in held_out:
        kept[first:last] = False
    if not kept.any():
        raise SettingsError("every job is held out: there is nothing to learn from")
    left = jobs.take(kept)
    since_s = np.cumsum(jobs.interval_s[kept])
    return replace(left, submit_s=left.submit_s[0] + since_s - since_s[0])


def imagined(jobs: Jobs, held_out: Sequence[tuple[int, int]], generator: str, count: int, seed: int) -> Jobs:
    """So many jobs, as this generator makes them after the ones that may be trained on."""
    fitted = make(generator).fit(usable(jobs, held_out), np.random.default_rng(0))
    return fitted.sample(count, np.random.default_rng(seed))
