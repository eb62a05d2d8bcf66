"""Head of the queue first, with or without EASY backfilling: jobs + policy -> start times.

The policy picks a job; if it does not fit it keeps the head of the queue until it does (`hold`), or the choice is
made again at every event. EASY lets others pass only where they cannot delay the head's reservation.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int64, njit

from clustertwin.workload.simulator.compiled import compiled
from clustertwin.workload.simulator.events import OVER, SUBMITTED, advance
from clustertwin.workload.simulator.machine import (
    CLOCKS,
    DUES,
    ENDS,
    JOBS,
    NONE,
    dequeue,
    enqueue,
    fits,
    reservation,
    start,
    tabulate,
)
from clustertwin.workload.simulator.scoring import POINTER, ask
from clustertwin.workload.simulator.usage import ACCOUNTS, charge

INTS = int64[::1]


@njit
def may_pass(clock, job, shadow_s, spare, spare_gpus):  # type: ignore[no-untyped-def]
    """Whether a job can start now without delaying the head: it is gone by then, or fits beside it."""
    return fits(clock, job) and (
        clock.now_s + job.estimate_s <= shadow_s or (job.procs <= spare and job.gpus <= spare_gpus)
    )


@compiled(
    int64(JOBS, CLOCKS, ENDS, DUES, INTS, ACCOUNTS, INTS, INTS, POINTER, float64[::1], int64, boolean, boolean, boolean)
)
def run_head(  # type: ignore[no-untyped-def]
    jobs, clocks, ends, dues, queue, accounts, rank, order, pointer, weights, procs, varies, easy, hold
):
    """Run the log to its end; gives how often a score was no number."""
    clock = clocks[0]
    nonsense = np.zeros(1, dtype=np.int64)
    room = np.zeros((2, len(dues)), dtype=np.int64)
    shadow_s, spare, spare_gpus = np.inf, 0, 0
    reserved = False  # whether these three still hold
    while True:
        what, newest = advance(clock, jobs, ends, dues, queue, accounts, rank, not easy)
        if what == OVER:
            return nonsense[0]
        reserved = reserved and what == SUBMITTED
        # Where scores never vary, only a newcomer can take the head's place.
        better = varies or not easy or (newest != NONE and newest < rank[clock.head])
        if not hold and clock.head != NONE and better:
            enqueue(clock, queue, rank[clock.head])
            clock.head = NONE

        while True:
            if clock.head == NONE:
                if clock.first == clock.last:
                    break
                at = clock.first
                if varies:
                    tabulate(clock, jobs, dues, room)
                    lowest = np.inf
                    for place in range(clock.first, clock.last):
                        score = ask(
                            clock, dues, room, jobs[order[queue[place]]], procs, accounts, pointer, weights, nonsense
                        )
                        if score < lowest:
                            at, lowest = place, score
                clock.head = order[dequeue(clock, queue, at)]
                reserved = False
            if not fits(clock, jobs[clock.head]):
                break
            start(clock, jobs, ends, dues, clock.head)
            charge(accounts, jobs[clock.head].user, jobs[clock.head].procs, clock.now_s)
            clock.head = NONE

        if not easy or clock.head == NONE or clock.first == clock.last or clock.free == 0:
            continue
        at = clock.first
        if not reserved:
            shadow_s, spare, spare_gpus = reservation(clock, jobs, dues, jobs[clock.head])
            reserved = True
        else:
            # For the others only time has passed: who could not go by before still cannot.
            if not may_pass(clock, jobs[order[newest]], shadow_s, spare, spare_gpus):
                continue
            at += np.searchsorted(queue[clock.first : clock.last], newest)
        while at < clock.last and clock.free > 0:
            chosen = order[queue[at]]
            if not may_pass(clock, jobs[chosen], shadow_s, spare, spare_gpus):
                at += 1
                continue
            if varies:
                tabulate(clock, jobs, dues, room)
                lowest = ask(clock, dues, room, jobs[chosen], procs, accounts, pointer, weights, nonsense)
                for place in range(at + 1, clock.last):
                    other = jobs[order[queue[place]]]
                    if may_pass(clock, other, shadow_s, spare, spare_gpus):
                        score = ask(clock, dues, room, other, procs, accounts, pointer, weights, nonsense)
                        if score < lowest:
                            at, lowest, chosen = place, score, order[queue[place]]
            first = clock.first
            dequeue(clock, queue, at)
            start(clock, jobs, ends, dues, chosen)
            if clock.now_s + jobs[chosen].estimate_s > shadow_s:
                spare -= jobs[chosen].procs
                spare_gpus -= jobs[chosen].gpus
            charge(accounts, jobs[chosen].user, jobs[chosen].procs, clock.now_s)
            if varies:
                at = clock.first
            elif clock.first > first:
                at += 1
