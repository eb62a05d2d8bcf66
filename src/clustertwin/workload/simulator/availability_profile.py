"""The availability profile: free processors and GPUs as a step function of time. Compiled.

`steps[i]` holds from its time to the time of the next step; the last step holds forever. Functions that change the
profile return its new number of steps.
"""

from __future__ import annotations

import numpy as np
from numba import from_dtype, njit

STEP = np.dtype([("time_s", "f8"), ("free_procs", "i8"), ("free_gpus", "i8")])
STEPS = from_dtype(STEP)[::1]


@njit
def _split(steps, n, time_s):  # type: ignore[no-untyped-def]
    """Make a step begin at this time. Returns its index and the number of steps."""
    at = n
    while at > 0 and steps[at - 1].time_s >= time_s:
        at -= 1
    if at < n and steps[at].time_s == time_s:
        return at, n
    for i in range(n, at, -1):
        steps[i] = steps[i - 1]
    if at > 0:
        steps[at] = steps[at - 1]
    steps[at].time_s = time_s
    return at, n + 1


@njit
def add_free(steps, n, start_s, end_s, procs, gpus):  # type: ignore[no-untyped-def]
    """Add free processors and GPUs between two times. A reservation adds negative numbers."""
    if end_s <= start_s:
        return n
    first, n = _split(steps, n, start_s)
    last, n = _split(steps, n, end_s)
    for i in range(first, last):
        steps[i].free_procs += procs
        steps[i].free_gpus += gpus
    # Merge steps that no longer differ from the previous one, so that the profile stays short.
    for i in (last, first):
        if i > 0 and steps[i].free_procs == steps[i - 1].free_procs and steps[i].free_gpus == steps[i - 1].free_gpus:
            for k in range(i, n - 1):
                steps[k] = steps[k + 1]
            n -= 1
    return n


@njit
def drop_past(steps, n, now_s):  # type: ignore[no-untyped-def]
    """Remove the steps that end before now."""
    past = 0
    while past + 1 < n and steps[past + 1].time_s <= now_s:
        past += 1
    if past > 0:
        for i in range(past, n):
            steps[i - past] = steps[i]
    return n - past


@njit
def earliest_fit_s(steps, n, now_s, job):  # type: ignore[no-untyped-def]
    """The earliest time from now at which the job fits for the whole of its estimated run time."""
    start_s, fits = now_s, False
    for i in range(n):
        if i + 1 < n and steps[i + 1].time_s <= now_s:
            continue
        if steps[i].free_procs < job.procs or steps[i].free_gpus < job.gpus:
            fits = False
            continue
        if not fits:
            start_s, fits = max(steps[i].time_s, now_s), True
        # The same sum as the end of the reservation: the difference can round to another answer.
        if i + 1 == n or start_s + job.estimate_s <= steps[i + 1].time_s:
            break
    return start_s
