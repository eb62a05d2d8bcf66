"""What is free when: a step function of time that reservations are cut out of, and given back to. Compiled.

`steps[i]` holds from its time to the next step's; the last one holds forever.
"""

from __future__ import annotations

import numpy as np
from numba import from_dtype, njit

STEP = np.dtype([("time_s", "f8"), ("free", "i8"), ("free_gpus", "i8")])
STEPS = from_dtype(STEP)[::1]


@njit
def _split(steps, n, time_s):  # type: ignore[no-untyped-def]
    """Let a step begin at this time; gives its place and the number of steps."""
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
def change(steps, n, start_s, end_s, procs, gpus):  # type: ignore[no-untyped-def]
    """Add to what is free from start to end (a reservation adds a negative number); gives the number of steps."""
    if end_s <= start_s:
        return n
    first, n = _split(steps, n, start_s)
    last, n = _split(steps, n, end_s)
    for i in range(first, last):
        steps[i].free += procs
        steps[i].free_gpus += gpus
    # Steps that no longer differ from the one before would pile up.
    for i in (last, first):
        if i > 0 and steps[i].free == steps[i - 1].free and steps[i].free_gpus == steps[i - 1].free_gpus:
            for k in range(i, n - 1):
                steps[k] = steps[k + 1]
            n -= 1
    return n


@njit
def forget(steps, n, now_s):  # type: ignore[no-untyped-def]
    """Drop what lies wholly in the past; gives the number of steps."""
    past = 0
    while past + 1 < n and steps[past + 1].time_s <= now_s:
        past += 1
    if past > 0:
        for i in range(past, n):
            steps[i - past] = steps[i]
    return n - past


@njit
def earliest_s(steps, n, now_s, procs, gpus, length_s):  # type: ignore[no-untyped-def]
    """The first time from now at which so much is free for so long."""
    start_s, found = now_s, False
    for i in range(n):
        if i + 1 < n and steps[i + 1].time_s <= now_s:
            continue
        if steps[i].free < procs or steps[i].free_gpus < gpus:
            found = False
            continue
        if not found:
            start_s, found = max(steps[i].time_s, now_s), True
        if i + 1 == n or steps[i + 1].time_s - start_s >= length_s:
            break
    return start_s
