"""Synthetic jobs to train on: a log without its held-out jobs + a generator -> a synthetic log of any length.

The generator is fitted only to the jobs that may be trained on. The time of held-out jobs is cut out: the gap before
the next job is the gap between that job and its predecessor in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.generators import make
from clustertwin.workload.jobs import Jobs


def without_held_out(jobs: Jobs, held_out: Sequence[tuple[int, int]]) -> Jobs:
    """The log without the ranges of jobs `held_out` (first, one past the last).

    >>> without_held_out(Jobs.build([0, 10, 20, 40], [1, 1, 1, 1]), [(1, 3)]).submit_s.tolist()
    [0.0, 20.0]
    """
    usable = np.ones(len(jobs), dtype=bool)
    for first, last in held_out:
        usable[first:last] = False
    if not usable.any():
        raise SettingsError("all jobs are held out; no job is left to train on")
    kept = jobs.take(usable)
    elapsed_s = np.cumsum(jobs.interval_s[usable])
    return replace(kept, submit_s=kept.submit_s[0] + elapsed_s - elapsed_s[0])


def synthetic_log(jobs: Jobs, held_out: Sequence[tuple[int, int]], generator: str, count: int, seed: int) -> Jobs:
    """`count` jobs from this generator, fitted to the jobs that are not held out."""
    fitted = make(generator).fit(without_held_out(jobs, held_out), np.random.default_rng(0))
    return fitted.sample(count, np.random.default_rng(seed))
