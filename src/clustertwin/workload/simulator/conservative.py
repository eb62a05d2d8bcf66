"""Conservative backfilling: jobs + policy -> start times. Every job holds a reservation, and nobody's is ever delayed.

A job gets the earliest start that fits at its submission. When another ends early, the waiting jobs move forward into
the gap in the policy's order, each from its own place, so that none can lose.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int64

from clustertwin.workload.simulator.compiled import compiled
from clustertwin.workload.simulator.events import next_event_s
from clustertwin.workload.simulator.machine import (
    CLOCKS,
    DUES,
    ENDS,
    JOBS,
    dequeue,
    enqueue,
    finish_first,
    start,
    tabulate,
)
from clustertwin.workload.simulator.profile import STEPS, change, earliest_s, forget
from clustertwin.workload.simulator.scoring import POINTER, ask
from clustertwin.workload.simulator.usage import ACCOUNTS, charge

INTS = int64[::1]


@compiled(
    int64(
        JOBS, CLOCKS, ENDS, DUES, INTS, ACCOUNTS, INTS, INTS, POINTER, float64[::1], int64, boolean, STEPS, float64[::1]
    )
)
def run_conservative(  # type: ignore[no-untyped-def]
    jobs, clocks, ends, dues, queue, accounts, rank, order, pointer, weights, procs, varies, steps, reserved_s
):
    """Run the log to its end; gives how often a score was no number. `reserved_s` keeps the first reservations."""
    clock = clocks[0]
    nonsense = np.zeros(1, dtype=np.int64)
    room = np.zeros((2, len(dues)), dtype=np.int64)
    planned_s = np.zeros(len(jobs))
    score = np.zeros(len(jobs))
    n = 1
    steps[0].time_s, steps[0].free, steps[0].free_gpus = -np.inf, clock.free, clock.free_gpus
    while True:
        # A reservation can come due where nothing else happens: behind a job that ended early.
        now_s = next_event_s(clock, jobs, ends)
        for at in range(clock.first, clock.last):
            now_s = min(now_s, planned_s[order[queue[at]]])
        if now_s == np.inf:
            return nonsense[0]
        clock.now_s = now_s

        gap = False
        while clock.ending > 0 and ends[0].end_s <= now_s:
            job = jobs[finish_first(clock, jobs, ends, dues)]
            charge(accounts, job.user, -job.procs, now_s)
            due_s = job.start_s + job.estimate_s
            if due_s > now_s:
                n = change(steps, n, now_s, due_s, job.procs, job.gpus)
                gap = True
        n = forget(steps, n, now_s)

        if gap and clock.last > clock.first:
            waiting = order[queue[clock.first : clock.last]]
            if varies:
                tabulate(clock, jobs, dues, room)
                for i in range(len(waiting)):
                    score[i] = ask(clock, dues, room, jobs[waiting[i]], procs, accounts, pointer, weights, nonsense)
                waiting = waiting[np.argsort(score[: len(waiting)], kind="mergesort")]
            # Who moves forward may leave a place to one who stayed: go on until all stay.
            while gap:
                gap = False
                for which in waiting:
                    job = jobs[which]
                    old_s = planned_s[which]
                    n = change(steps, n, old_s, old_s + job.estimate_s, job.procs, job.gpus)
                    planned_s[which] = earliest_s(steps, n, now_s, job.procs, job.gpus, job.estimate_s)
                    n = change(steps, n, planned_s[which], planned_s[which] + job.estimate_s, -job.procs, -job.gpus)
                    gap = gap or planned_s[which] < old_s

        while clock.next < len(jobs) and jobs[clock.next].submit_s <= now_s:
            which = clock.next
            job = jobs[which]
            planned_s[which] = reserved_s[which] = earliest_s(steps, n, now_s, job.procs, job.gpus, job.estimate_s)
            n = change(steps, n, planned_s[which], planned_s[which] + job.estimate_s, -job.procs, -job.gpus)
            enqueue(clock, queue, rank[which])
            clock.next += 1

        at = clock.first
        while at < clock.last:
            which = order[queue[at]]
            if planned_s[which] > now_s:
                at += 1
                continue
            first = clock.first
            dequeue(clock, queue, at)
            start(clock, jobs, ends, dues, which)
            charge(accounts, jobs[which].user, jobs[which].procs, now_s)
            if clock.first > first:
                at += 1
