"""Recent run times by user and request: jobs that ended -> run times that a similar job may have. Compiled.

A job belongs to one class on each level: jobs of its user with the same limit and size, with the same limit, with the
same size, all jobs of its user, all jobs. The narrowest class with enough recent jobs answers, so every prediction can
be explained by naming the class. The last level keeps fractions of the limit; the others keep run times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float64, int64, types
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled

LEVELS = ("user, limit and size", "user and limit", "user and size", "user", "all jobs")
KEPT = 64  # recent jobs of a class


class RunTimeHistory(NamedTuple):
    """The last run times of every class, in rings."""

    codes: NDArray[np.int64]  # (job, level): the class of each job
    rings: NDArray[np.float64]  # (class, kept)
    counts: NDArray[np.int64]  # (class,): jobs seen


#: The numba type of a `RunTimeHistory` as a plain tuple.
HISTORY = types.Tuple((int64[:, ::1], float64[:, ::1], int64[::1]))


def new_history(user: NDArray[Any], request_s: NDArray[Any], procs: NDArray[Any]) -> RunTimeHistory:
    """An empty history for jobs of these users, limits and sizes."""
    columns = np.stack([user, request_s, procs]).astype(np.int64)  # (3, job)
    nobody = np.zeros(len(user), np.int64)
    levels = [columns, columns[[0, 1]], columns[[0, 2]], columns[[0]], nobody[None]]
    codes, classes = [], 0
    for level in levels:
        _, code = np.unique(level, axis=1, return_inverse=True)
        codes.append(code.ravel() + classes)
        classes += int(code.max(initial=-1)) + 1
    table = np.ascontiguousarray(np.stack(codes, axis=1), np.int64)
    return RunTimeHistory(table, np.zeros((classes, KEPT)), np.zeros(classes, np.int64))


@compiled
def remember(history, job, run_s, request_s):  # type: ignore[no-untyped-def]
    """Add a job that ended to its classes."""
    codes, rings, counts = history
    last = codes.shape[1] - 1
    for level in range(last + 1):
        c = codes[job, level]
        rings[c, counts[c] % rings.shape[1]] = run_s / max(request_s, 1.0) if level == last else run_s
        counts[c] += 1


@compiled
def recent_runs(history, job, request_s, elapsed_s, least, out):  # type: ignore[no-untyped-def]
    """Fill `out` with recent run times of similar jobs that exceed `elapsed_s`, the newest first.

    Returns their number and the level that answered. A level with fewer than `least` of them gives way to the next.
    """
    codes, rings, counts = history
    last, kept = codes.shape[1] - 1, rings.shape[1]
    for level in range(last + 1):
        c = codes[job, level]
        n = 0
        for k in range(min(counts[c], kept)):
            value = rings[c, (counts[c] - 1 - k) % kept]
            if level == last:
                value *= request_s
            value = min(value, request_s)
            if value > elapsed_s and n < len(out):
                out[n] = value
                n += 1
        if n >= least or (level == last and n > 0):
            return n, level
    return 0, last
