"""The machine while it runs: jobs start, end, wait in order and hold a reservation. Compiled, no policy in it.

Every simulator of this room and the training environment move the same arrays with these verbs. They are numpy
records, one array a kind, because compiled code passes those by pointer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, njit
from numpy.typing import NDArray

NONE = -1

#: One job, as the simulator knows it: 64 bytes, a line of cache. Policies see a `policies.Request` instead.
JOB = np.dtype(
    [
        ("submit_s", "f8"),
        ("run_s", "f8"),
        ("estimate_s", "f8"),  # what a reservation counts on: the limit, never below the run time
        ("request_s", "f8"),  # what a policy sees
        ("start_s", "f8"),  # the result
        ("procs", "i4"),
        ("gpus", "i4"),
        ("user", "i4"),  # 0 … users - 1
        ("group", "i4"),
        ("queue", "i4"),
        ("released", "i4"),  # whether its processors have been given back
    ]
)

#: What there is one of.
CLOCK = np.dtype(
    [
        ("now_s", "f8"),
        ("free", "i8"),
        ("free_gpus", "i8"),
        ("running", "i8"),  # length of `due`
        ("ending", "i8"),  # length of `ends`
        ("first", "i8"),  # the queue goes from here …
        ("last", "i8"),  # … up to here
        ("next", "i8"),  # the job that is submitted next
        ("head", "i8"),  # the job that was picked and does not fit yet
        ("started", "i8"),
    ]
)

#: A heap of true ends; jobs that end together do so in the order of their starts.
END = np.dtype([("end_s", "f8"), ("turn", "i8"), ("job", "i8")])

#: Running jobs by the end that the scheduler counts on, ascending.
DUE = np.dtype([("due_s", "f8"), ("job", "i8")])

JOBS, CLOCKS, ENDS, DUES = (from_dtype(kind)[::1] for kind in (JOB, CLOCK, END, DUE))

Records = NDArray[Any]


def empty(procs: int, gpus: int, jobs: int) -> tuple[Records, Records, Records, NDArray[np.int64]]:
    """A machine with nothing on it: clock, ends, dues and a queue with room for so many jobs."""
    clock = np.zeros(1, CLOCK)
    clock["free"], clock["free_gpus"], clock["head"] = procs, gpus, NONE
    return clock, np.zeros(jobs, END), np.zeros(min(jobs, procs), DUE), np.zeros(jobs, np.int64)


@njit
def fits(clock, job):  # type: ignore[no-untyped-def]
    return job.procs <= clock.free and job.gpus <= clock.free_gpus


@njit
def start(clock, jobs, ends, dues, which):  # type: ignore[no-untyped-def]
    """Start a job that fits, now."""
    job = jobs[which]
    job.start_s = clock.now_s
    clock.free -= job.procs
    clock.free_gpus -= job.gpus

    at, end_s = clock.ending, clock.now_s + job.run_s
    while at > 0:
        above = (at - 1) >> 1
        if ends[above].end_s <= end_s:
            break
        ends[at] = ends[above]
        at = above
    ends[at].end_s = end_s
    ends[at].turn = clock.started
    ends[at].job = which
    clock.ending += 1
    clock.started += 1

    at, due_s = clock.running, clock.now_s + job.estimate_s
    while at > 0 and dues[at - 1].due_s > due_s:
        dues[at] = dues[at - 1]
        at -= 1
    dues[at].due_s = due_s
    dues[at].job = which
    clock.running += 1


@njit
def release_due(clock, jobs, dues):  # type: ignore[no-untyped-def]
    """Give back what the jobs hold that end now on their estimate: nobody needs telling. Gives how many."""
    n = 0
    while n < clock.running and dues[n].due_s <= clock.now_s:
        job = jobs[dues[n].job]
        job.released = 1
        clock.free += job.procs
        clock.free_gpus += job.gpus
        n += 1
    if n > 0:
        for i in range(n, clock.running):
            dues[i - n] = dues[i]
        clock.running -= n
    return n


@njit
def finish_first(clock, jobs, ends, dues):  # type: ignore[no-untyped-def]
    """End the job whose true end comes first; gives the job."""
    which = ends[0].job
    n = clock.ending - 1
    clock.ending = n
    end_s, turn, at = ends[n].end_s, ends[n].turn, 0
    while True:
        below = 2 * at + 1
        if below >= n:
            break
        right = below + 1
        if right < n and _before(ends[right].end_s, ends[right].turn, ends[below].end_s, ends[below].turn):
            below = right
        if not _before(ends[below].end_s, ends[below].turn, end_s, turn):
            break
        ends[at] = ends[below]
        at = below
    ends[at] = ends[n]

    job = jobs[which]
    if job.released == 0:
        job.released = 1
        clock.free += job.procs
        clock.free_gpus += job.gpus
        clock.running -= 1
        at = 0
        while dues[at].job != which:
            at += 1
        for i in range(at, clock.running):
            dues[i] = dues[i + 1]
    return which


@njit
def _before(end_s, turn, other_end_s, other_turn):  # type: ignore[no-untyped-def]
    return end_s < other_end_s or (end_s == other_end_s and turn < other_turn)


@njit
def enqueue(clock, queue, rank):  # type: ignore[no-untyped-def]
    """Let the job of this rank wait in its place."""
    if clock.last == len(queue):
        queue[: clock.last - clock.first] = queue[clock.first : clock.last].copy()
        clock.last -= clock.first
        clock.first = 0
    at = clock.last
    while at > clock.first and queue[at - 1] > rank:
        queue[at] = queue[at - 1]
        at -= 1
    queue[at] = rank
    clock.last += 1


@njit
def dequeue(clock, queue, at):  # type: ignore[no-untyped-def]
    """Take the rank at this place out of the queue, closing the gap from its shorter side."""
    rank = queue[at]
    if at - clock.first < clock.last - at:
        for i in range(at, clock.first, -1):
            queue[i] = queue[i - 1]
        clock.first += 1
    else:
        for i in range(at, clock.last - 1):
            queue[i] = queue[i + 1]
        clock.last -= 1
    if clock.first == clock.last:
        clock.first = clock.last = 0
    return rank


@njit
def reservation(clock, jobs, dues, head):  # type: ignore[no-untyped-def]
    """When a job that does not fit now can start at the latest, and what is left free beside it then."""
    free, free_gpus, shadow_s = clock.free, clock.free_gpus, np.inf
    for i in range(clock.running):
        if dues[i].due_s > shadow_s:
            break
        job = jobs[dues[i].job]
        free += job.procs
        free_gpus += job.gpus
        if free >= head.procs and free_gpus >= head.gpus:
            # Whatever ends at the same moment is free beside it too.
            shadow_s = dues[i].due_s
    return shadow_s, free - head.procs, free_gpus - head.gpus


@njit
def tabulate(clock, jobs, dues, room):  # type: ignore[no-untyped-def]
    """Note in `room` (2, running) what will be free after each end that is due, for `ready_s`."""
    free, free_gpus = clock.free, clock.free_gpus
    for i in range(clock.running):
        job = jobs[dues[i].job]
        free += job.procs
        free_gpus += job.gpus
        room[0, i], room[1, i] = free, free_gpus


@njit
def ready_s(clock, dues, room, job):  # type: ignore[no-untyped-def]
    """When a job fits at the latest, if nothing else starts: the shadow of `reservation`, by bisection."""
    if fits(clock, job):
        return clock.now_s
    low, high = 0, clock.running - 1
    while low < high:
        middle = (low + high) >> 1
        if room[0, middle] >= job.procs and room[1, middle] >= job.gpus:
            high = middle
        else:
            low = middle + 1
    return dues[low].due_s
