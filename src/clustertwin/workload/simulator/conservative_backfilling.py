"""Conservative backfilling: jobs + policy -> start times. Compiled.

Every job has a reservation, and no reservation is ever delayed. A job gets the earliest reservation that fits at its
submission. When a running job ends early, the waiting jobs move forward in the policy's order. Each moves from its own
reservation, so no reservation gets later.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, njit, void

from clustertwin.core.compiled import compiled_for
from clustertwin.workload.simulator.availability_profile import STEPS, add_free, drop_past, earliest_fit_s
from clustertwin.workload.simulator.fair_share import charge
from clustertwin.workload.simulator.machine_state import (
    MACHINE_STATE,
    dequeue,
    end_next_job,
    enqueue,
    start_job,
    update_availability,
)
from clustertwin.workload.simulator.next_event import next_event_s
from clustertwin.workload.simulator.policy_scores import POLICY_ARRAYS, SCORE_FUNCTION, score_job


@njit
def _reserve(steps, n, job, start_s):  # type: ignore[no-untyped-def]
    return add_free(steps, n, start_s, start_s + job.estimate_s, -job.procs, -job.gpus)


@njit
def _cancel(steps, n, job, start_s):  # type: ignore[no-untyped-def]
    return add_free(steps, n, start_s, start_s + job.estimate_s, job.procs, job.gpus)


@compiled_for(void(MACHINE_STATE, POLICY_ARRAYS, SCORE_FUNCTION, boolean, STEPS, float64[::1]))
def run_conservative(machine, policy, score_function, varies, steps, first_reserved_s):  # type: ignore[no-untyped-def]
    """Simulate until all jobs have ended; sets the start times in `machine.jobs`.

    `steps` is the memory of the availability profile. `first_reserved_s` receives each job's first reservation.
    """
    states, jobs, end_events, running, queue, accounts, availability = machine
    rank, order, weights, nan_scores = policy
    state = states[0]
    reserved_s = np.zeros(len(jobs))
    scores = np.zeros(len(jobs))
    n = 1
    steps[0].time_s, steps[0].free_procs, steps[0].free_gpus = -np.inf, state.free_procs, state.free_gpus
    while True:
        # A reservation can begin at a time without any event: after a job that ended early.
        now_s = next_event_s(state, jobs, end_events)
        for at in range(state.queue_start, state.queue_end):
            now_s = min(now_s, reserved_s[order[queue[at]]])
        if now_s == np.inf:
            return
        state.now_s = now_s

        early_end = False
        while state.ending > 0 and end_events[0].end_s <= now_s:
            job = jobs[end_next_job(state, jobs, end_events, running)]
            charge(accounts, job.user, -job.procs, now_s)
            expected_end_s = job.start_s + job.estimate_s
            if expected_end_s > now_s:
                n = add_free(steps, n, now_s, expected_end_s, job.procs, job.gpus)
                early_end = True
        n = drop_past(steps, n, now_s)

        if early_end and state.queue_end > state.queue_start:
            waiting = order[queue[state.queue_start : state.queue_end]]
            if varies:
                update_availability(state, jobs, running, availability)
                for i in range(len(waiting)):
                    scores[i] = score_job(
                        state, running, availability, accounts, jobs[waiting[i]], score_function, weights, nan_scores
                    )
                waiting = waiting[np.argsort(scores[: len(waiting)], kind="mergesort")]
            # A job that moves forward can make room for a job that stayed; repeat until no job moves.
            moved = True
            while moved:
                moved = False
                for index in waiting:
                    job, previous_s = jobs[index], reserved_s[index]
                    n = _cancel(steps, n, job, previous_s)
                    reserved_s[index] = earliest_fit_s(steps, n, now_s, job)
                    n = _reserve(steps, n, job, reserved_s[index])
                    moved = moved or reserved_s[index] < previous_s

        while state.next_submission < len(jobs) and jobs[state.next_submission].submit_s <= now_s:
            index = state.next_submission
            reserved_s[index] = first_reserved_s[index] = earliest_fit_s(steps, n, now_s, jobs[index])
            n = _reserve(steps, n, jobs[index], reserved_s[index])
            enqueue(state, queue, rank[index])
            state.next_submission += 1

        at = state.queue_start
        while at < state.queue_end:
            index = order[queue[at]]
            if reserved_s[index] > now_s:
                at += 1
                continue
            queue_start = state.queue_start
            dequeue(state, queue, at)
            start_job(state, jobs, end_events, running, index)
            charge(accounts, jobs[index].user, jobs[index].procs, now_s)
            if state.queue_start > queue_start:
                at += 1
