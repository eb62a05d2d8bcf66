"""Schedule the head of the queue first, with or without EASY backfilling: jobs + policy -> start times. Compiled.

The policy selects the head of the queue. A head that does not fit either keeps its place until it fits (`hold`), or
the policy selects again at every event. EASY gives the head a reservation and starts other jobs only if they cannot
delay it.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, njit, void

from clustertwin.core.compiled import compiled_for
from clustertwin.workload.simulator.fair_share import charge
from clustertwin.workload.simulator.machine_state import (
    MACHINE_STATE,
    NONE,
    dequeue,
    enqueue,
    fits,
    head_reservation,
    start_job,
    update_availability,
)
from clustertwin.workload.simulator.next_event import OVER, SUBMITTED, advance
from clustertwin.workload.simulator.policy_scores import POLICY_ARRAYS, SCORE_FUNCTION, score_job


@njit
def can_backfill(state, job, shadow_time_s, extra_procs, extra_gpus):  # type: ignore[no-untyped-def]
    """Whether a job can start now without delaying the head: it ends by the shadow time, or needs only extra nodes."""
    return fits(state, job) and (
        state.now_s + job.estimate_s <= shadow_time_s or (job.procs <= extra_procs and job.gpus <= extra_gpus)
    )


@compiled_for(void(MACHINE_STATE, POLICY_ARRAYS, SCORE_FUNCTION, boolean, boolean, boolean))
def run_head_first(machine, policy, score_function, varies, easy, hold):  # type: ignore[no-untyped-def]
    """Simulate until all jobs have ended; sets the start times in `machine.jobs`."""
    states, jobs, end_events, running, queue, accounts, availability = machine
    rank, order, weights, nan_scores = policy
    state = states[0]
    shadow_time_s, extra_procs, extra_gpus = np.inf, 0, 0
    reserved = False  # whether the reservation above is still valid
    while True:
        event, newest = advance(state, jobs, end_events, running, queue, accounts, rank, not easy)
        if event == OVER:
            return
        reserved = reserved and event == SUBMITTED
        # If scores do not vary, only a new job can replace the head.
        replaceable = varies or not easy or (newest != NONE and newest < rank[state.head])
        if not hold and state.head != NONE and replaceable:
            enqueue(state, queue, rank[state.head])
            state.head = NONE

        while True:
            if state.head == NONE:
                if state.queue_start == state.queue_end:
                    break
                at = state.queue_start
                if varies:
                    update_availability(state, jobs, running, availability)
                    lowest = np.inf
                    for position in range(state.queue_start, state.queue_end):
                        job = jobs[order[queue[position]]]
                        score = score_job(
                            state, running, availability, accounts, job, score_function, weights, nan_scores
                        )
                        if score < lowest:
                            at, lowest = position, score
                state.head = order[dequeue(state, queue, at)]
                reserved = False
            if not fits(state, jobs[state.head]):
                break
            start_job(state, jobs, end_events, running, state.head)
            charge(accounts, jobs[state.head].user, jobs[state.head].procs, state.now_s)
            state.head = NONE

        if not easy or state.head == NONE or state.queue_start == state.queue_end or state.free_procs == 0:
            continue
        at = state.queue_start
        if not reserved:
            shadow_time_s, extra_procs, extra_gpus = head_reservation(state, jobs, running, jobs[state.head])
            reserved = True
        else:
            # Only time has passed for the other jobs, so a job that could not be backfilled before still cannot.
            if not can_backfill(state, jobs[order[newest]], shadow_time_s, extra_procs, extra_gpus):
                continue
            at += np.searchsorted(queue[state.queue_start : state.queue_end], newest)
        while at < state.queue_end and state.free_procs > 0:
            candidate = order[queue[at]]
            if not can_backfill(state, jobs[candidate], shadow_time_s, extra_procs, extra_gpus):
                at += 1
                continue
            if varies:
                update_availability(state, jobs, running, availability)
                lowest = score_job(
                    state, running, availability, accounts, jobs[candidate], score_function, weights, nan_scores
                )
                for position in range(at + 1, state.queue_end):
                    other = jobs[order[queue[position]]]
                    if can_backfill(state, other, shadow_time_s, extra_procs, extra_gpus):
                        score = score_job(
                            state, running, availability, accounts, other, score_function, weights, nan_scores
                        )
                        if score < lowest:
                            at, lowest, candidate = position, score, order[queue[position]]
            queue_start = state.queue_start
            dequeue(state, queue, at)
            start_job(state, jobs, end_events, running, candidate)
            if state.now_s + jobs[candidate].estimate_s > shadow_time_s:
                extra_procs -= jobs[candidate].procs
                extra_gpus -= jobs[candidate].gpus
            charge(accounts, jobs[candidate].user, jobs[candidate].procs, state.now_s)
            if varies:
                at = state.queue_start
            elif state.queue_start > queue_start:
                at += 1
