"""The simulated machine: running jobs, free processors and the queue, in numpy records. Compiled.

Every simulation loop and the training environment use these functions on the same arrays. The arrays hold numpy
records because compiled code passes records by pointer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, int64, njit, types
from numpy.typing import NDArray

from clustertwin.workload.simulator.fair_share import ACCOUNTS

#: No job.
NONE = -1

#: One job, as the simulator knows it: 64 bytes, one cache line. A policy receives a `policies.Request` instead.
JOB = np.dtype(
    [
        ("submit_s", "f8"),
        ("run_s", "f8"),
        ("estimate_s", "f8"),  # the run time that reservations assume: the time limit, but at least the run time
        ("request_s", "f8"),  # the time limit, as a policy sees it
        ("start_s", "f8"),  # the result of the simulation
        ("procs", "i4"),
        ("gpus", "i4"),
        ("user", "i4"),  # 0 … users - 1
        ("group", "i4"),
        ("queue", "i4"),
        ("released", "i4"),  # 1 once its processors are free again
    ]
)

#: The scalars of the machine; one record.
STATE = np.dtype(
    [
        ("now_s", "f8"),
        ("procs", "i8"),  # of the machine
        ("free_procs", "i8"),
        ("free_gpus", "i8"),
        ("running", "i8"),  # entries of `running`
        ("ending", "i8"),  # entries of `end_events`
        ("queue_start", "i8"),  # the queue occupies queue[queue_start:queue_end]
        ("queue_end", "i8"),
        ("next_submission", "i8"),  # the job that is submitted next
        ("head", "i8"),  # the job at the head of the queue, if the policy has selected one that does not fit yet
        ("started", "i8"),  # number of jobs started so far
    ]
)

#: A heap of the true ends. Jobs that end at the same time end in the order of their starts.
END_EVENT = np.dtype([("end_s", "f8"), ("start_order", "i8"), ("job", "i8")])

#: Running jobs in ascending order of the end that the scheduler expects.
RUNNING_JOB = np.dtype([("expected_end_s", "f8"), ("job", "i8")])

JOBS, STATES, END_EVENTS, RUNNING_JOBS = (from_dtype(kind)[::1] for kind in (JOB, STATE, END_EVENT, RUNNING_JOB))

Records = NDArray[Any]


class MachineState(NamedTuple):
    """One machine and its jobs."""

    state: Records  # (1,) of STATE
    jobs: Records  # of JOB, in order of submission
    end_events: Records  # of END_EVENT
    running: Records  # of RUNNING_JOB
    queue: NDArray[np.int64]  # the ranks of the waiting jobs, ascending
    accounts: Records  # of fair_share.ACCOUNT
    availability: NDArray[np.int64]  # (2, running): free processors and GPUs after each expected end


#: The numba type of a `MachineState` as a plain tuple, which numba recognises 10 µs faster than a named one.
MACHINE_STATE = types.Tuple((STATES, JOBS, END_EVENTS, RUNNING_JOBS, int64[::1], ACCOUNTS, int64[:, ::1]))


def idle_machine(jobs: Records, procs: int, gpus: int, accounts: Records) -> MachineState:
    """A machine without running jobs, at the first submission."""
    state = np.zeros(1, STATE)
    state["procs"] = state["free_procs"] = procs
    state["free_gpus"], state["head"] = gpus, NONE
    n, most_running = len(jobs), min(len(jobs), procs)
    return MachineState(
        state, jobs, np.zeros(n, END_EVENT), np.zeros(most_running, RUNNING_JOB), np.zeros(n, np.int64), accounts,
        np.zeros((2, most_running), np.int64),
    )  # fmt: skip


@njit
def fits(state, job):  # type: ignore[no-untyped-def]
    """Whether enough processors and GPUs are free to start the job now."""
    return job.procs <= state.free_procs and job.gpus <= state.free_gpus


@njit
def start_job(state, jobs, end_events, running, index):  # type: ignore[no-untyped-def]
    """Start a job that fits, now."""
    job = jobs[index]
    job.start_s = state.now_s
    state.free_procs -= job.procs
    state.free_gpus -= job.gpus

    at, end_s = state.ending, state.now_s + job.run_s
    while at > 0:
        parent = (at - 1) >> 1
        if end_events[parent].end_s <= end_s:
            break
        end_events[at] = end_events[parent]
        at = parent
    end_events[at].end_s = end_s
    end_events[at].start_order = state.started
    end_events[at].job = index
    state.ending += 1
    state.started += 1

    at, expected_end_s = state.running, state.now_s + job.estimate_s
    while at > 0 and running[at - 1].expected_end_s > expected_end_s:
        running[at] = running[at - 1]
        at -= 1
    running[at].expected_end_s = expected_end_s
    running[at].job = index
    state.running += 1


@njit
def release_expected(state, jobs, running):  # type: ignore[no-untyped-def]
    """Free the processors of the jobs whose expected end is now. Returns the number of jobs."""
    n = 0
    while n < state.running and running[n].expected_end_s <= state.now_s:
        job = jobs[running[n].job]
        job.released = 1
        state.free_procs += job.procs
        state.free_gpus += job.gpus
        n += 1
    if n > 0:
        for i in range(n, state.running):
            running[i - n] = running[i]
        state.running -= n
    return n


@njit
def end_next_job(state, jobs, end_events, running):  # type: ignore[no-untyped-def]
    """Remove the first end event and free the processors of its job. Returns the job."""
    index = end_events[0].job
    n = state.ending - 1
    state.ending = n
    end_s, start_order, at = end_events[n].end_s, end_events[n].start_order, 0
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        right = child + 1
        if right < n and _ends_before(
            end_events[right].end_s, end_events[right].start_order, end_events[child].end_s,
            end_events[child].start_order,
        ):  # fmt: skip
            child = right
        if not _ends_before(end_events[child].end_s, end_events[child].start_order, end_s, start_order):
            break
        end_events[at] = end_events[child]
        at = child
    end_events[at] = end_events[n]

    job = jobs[index]
    if job.released == 0:
        job.released = 1
        state.free_procs += job.procs
        state.free_gpus += job.gpus
        state.running -= 1
        at = 0
        while running[at].job != index:
            at += 1
        for i in range(at, state.running):
            running[i] = running[i + 1]
    return index


@njit
def _ends_before(end_s, start_order, other_end_s, other_start_order):  # type: ignore[no-untyped-def]
    return end_s < other_end_s or (end_s == other_end_s and start_order < other_start_order)


@njit
def enqueue(state, queue, rank):  # type: ignore[no-untyped-def]
    """Insert a rank into the queue, which stays sorted."""
    if state.queue_end == len(queue):
        queue[: state.queue_end - state.queue_start] = queue[state.queue_start : state.queue_end].copy()
        state.queue_end -= state.queue_start
        state.queue_start = 0
    at = state.queue_end
    while at > state.queue_start and queue[at - 1] > rank:
        queue[at] = queue[at - 1]
        at -= 1
    queue[at] = rank
    state.queue_end += 1


@njit
def dequeue(state, queue, at):  # type: ignore[no-untyped-def]
    """Remove and return the rank at this position of the queue; the shorter side closes the gap."""
    rank = queue[at]
    if at - state.queue_start < state.queue_end - at:
        for i in range(at, state.queue_start, -1):
            queue[i] = queue[i - 1]
        state.queue_start += 1
    else:
        for i in range(at, state.queue_end - 1):
            queue[i] = queue[i + 1]
        state.queue_end -= 1
    if state.queue_start == state.queue_end:
        state.queue_start = state.queue_end = 0
    return rank


@njit
def head_reservation(state, jobs, running, head):  # type: ignore[no-untyped-def]
    """The reservation of a head that does not fit now: (shadow time, extra processors, extra GPUs).

    The shadow time is the earliest time at which enough processors are expected to be free. The extra processors are
    those that are free at that time beyond what the head needs.
    """
    free_procs, free_gpus, shadow_time_s = state.free_procs, state.free_gpus, np.inf
    for i in range(state.running):
        if running[i].expected_end_s > shadow_time_s:
            break
        job = jobs[running[i].job]
        free_procs += job.procs
        free_gpus += job.gpus
        if free_procs >= head.procs and free_gpus >= head.gpus:
            # Go on with the jobs that are expected to end at the same time: their processors are extra.
            shadow_time_s = running[i].expected_end_s
    return shadow_time_s, free_procs - head.procs, free_gpus - head.gpus


@njit
def update_availability(state, jobs, running, availability):  # type: ignore[no-untyped-def]
    """Fill in `availability`, which `earliest_start_s` reads."""
    free_procs, free_gpus = state.free_procs, state.free_gpus
    for i in range(state.running):
        job = jobs[running[i].job]
        free_procs += job.procs
        free_gpus += job.gpus
        availability[0, i], availability[1, i] = free_procs, free_gpus


@njit
def earliest_start_s(state, running, availability, job):  # type: ignore[no-untyped-def]
    """When a job is expected to fit if no other job starts: its shadow time, by bisection."""
    if fits(state, job):
        return state.now_s
    low, high = 0, state.running - 1
    while low < high:
        middle = (low + high) >> 1
        if availability[0, middle] >= job.procs and availability[1, middle] >= job.gpus:
            high = middle
        else:
            low = middle + 1
    return running[low].expected_end_s
