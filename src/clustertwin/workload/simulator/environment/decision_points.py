"""The simulation stopped at each decision: machine + choice -> the next decision, and the slowdown added in between.

The scheduling rules are those of `easy_backfilling.py`; a test compares the two. Without backfilling, the agent selects
any waiting job, which then blocks the queue until it fits. With EASY, a selected job that does not fit gets the
reservation, and the agent then selects among the jobs that can be backfilled. After the next event it selects a new
head. Compiled.
"""

from __future__ import annotations

import numpy as np
from numba import from_dtype, njit

from clustertwin.workload.policies.learned import FEATURES, features
from clustertwin.workload.policies.policy_contract import Request
from clustertwin.workload.simulator.easy_backfilling import can_backfill
from clustertwin.workload.simulator.machine_state import (
    NONE,
    dequeue,
    earliest_start_s,
    enqueue,
    fits,
    head_reservation,
    start_job,
    update_availability,
)
from clustertwin.workload.simulator.next_event import OVER, advance
from clustertwin.workload.simulator.policy_scores import current_moment

#: The state of a decision, besides the machine.
DECISION = np.dtype(
    [
        ("backfilling", "i8"),  # 1 if the agent selects a job to backfill, 0 if it selects the head
        ("over", "i8"),
        ("shadow_time_s", "f8"),
        ("extra_procs", "i8"),
        ("extra_gpus", "i8"),
        ("slowdown_rate", "f8"),  # the slowdown that all waiting jobs add per second
        ("added_slowdown", "f8"),  # since the last decision
    ]
)
DECISIONS = from_dtype(DECISION)[::1]


@njit
def _is_candidate(state, decision, job):  # type: ignore[no-untyped-def]
    if decision.backfilling:
        return can_backfill(state, job, decision.shadow_time_s, decision.extra_procs, decision.extra_gpus)
    return True


@njit
def _any_candidate(state, jobs, queue, decision):  # type: ignore[no-untyped-def]
    for at in range(state.queue_start, state.queue_end):  # noqa: SIM110, numba has no any()
        if _is_candidate(state, decision, jobs[queue[at]]):
            return True
    return False


@njit
def _any_fits(state, jobs, queue):  # type: ignore[no-untyped-def]
    for at in range(state.queue_start, state.queue_end):  # noqa: SIM110, numba has no any()
        if fits(state, jobs[queue[at]]):
            return True
    return False


@njit
def _start(state, jobs, end_events, running, decision, index, bound_s):  # type: ignore[no-untyped-def]
    start_job(state, jobs, end_events, running, index)
    decision.slowdown_rate -= 1.0 / max(jobs[index].run_s, bound_s)


@njit
def run_to_decision(machine, decision, rank, easy, bound_s):  # type: ignore[no-untyped-def]
    """Simulate until the agent has to choose, or until all jobs have started."""
    states, jobs, end_events, running, queue, accounts, _ = machine
    state = states[0]
    while True:
        if state.head == NONE:
            decision.backfilling = 0
            # With backfilling, a choice has no effect while no job fits.
            if state.queue_end > state.queue_start and (not easy or _any_fits(state, jobs, queue)):
                return
        elif fits(state, jobs[state.head]):
            _start(state, jobs, end_events, running, decision, state.head, bound_s)
            state.head = NONE
            continue
        elif easy:
            if decision.backfilling == 0:
                decision.shadow_time_s, decision.extra_procs, decision.extra_gpus = head_reservation(
                    state, jobs, running, jobs[state.head]
                )
                decision.backfilling = 1
            if _any_candidate(state, jobs, queue, decision):
                return
        before_s, submitted = state.now_s, state.next_submission
        event, _ = advance(state, jobs, end_events, running, queue, accounts, rank, not easy)
        if event == OVER:
            decision.over = 1
            return
        if submitted > 0:
            decision.added_slowdown += decision.slowdown_rate * (state.now_s - before_s)
        for index in range(submitted, state.next_submission):
            decision.slowdown_rate += 1.0 / max(jobs[index].run_s, bound_s)
        if easy and state.head != NONE:
            enqueue(state, queue, state.head)
            state.head = NONE


@njit
def choose(machine, decision, at, bound_s):  # type: ignore[no-untyped-def]
    """Apply a choice: the job at this position of the queue becomes the head, or is backfilled."""
    states, jobs, end_events, running, queue, _, _ = machine
    state = states[0]
    index = dequeue(state, queue, at)
    if decision.backfilling == 0:
        state.head = index
        return
    _start(state, jobs, end_events, running, decision, index, bound_s)
    job = jobs[index]
    if state.now_s + job.estimate_s > decision.shadow_time_s:
        decision.extra_procs -= job.procs
        decision.extra_gpus -= job.gpus


@njit
def observe(machine, decision, observation, positions):  # type: ignore[no-untyped-def]
    """Fill `observation` (K, FEATURES) and `positions` (K,) with the jobs to choose from. Returns their number.

    If there are more than K, one half is the oldest jobs, and the other half those of the rest with the smallest area
    (processors × requested time).
    """
    states, jobs, _, running, queue, _, availability = machine
    state = states[0]
    max_jobs = len(positions)
    n = 0
    for at in range(state.queue_start, state.queue_end):
        if n == max_jobs:
            break
        if _is_candidate(state, decision, jobs[queue[at]]):
            positions[n] = at
            n += 1
    if n == max_jobs and positions[n - 1] + 1 < state.queue_end:
        oldest = max_jobs // 2
        n = oldest
        areas = np.empty(max_jobs)
        for at in range(positions[oldest], state.queue_end):
            job = jobs[queue[at]]
            area = job.request_s * job.procs
            if (n == max_jobs and area >= areas[n - 1]) or not _is_candidate(state, decision, job):
                continue
            n = min(n + 1, max_jobs)
            k = n - 1
            while k > oldest and areas[k - 1] > area:
                areas[k], positions[k] = areas[k - 1], positions[k - 1]
                k -= 1
            areas[k], positions[k] = area, at
    update_availability(state, jobs, running, availability)
    now = current_moment(state)
    for k in range(n):
        job = jobs[queue[positions[k]]]
        # As in `score_job`, but without fair share. A shared function would make stepping 20 % slower.
        request = Request(
            job.submit_s,
            job.request_s,
            float(job.procs),
            float(job.gpus),
            float(job.user),
            float(job.group),
            float(job.queue),
            0.0,
            earliest_start_s(state, running, availability, job),
        )
        x = features(request, now)
        for f in range(FEATURES):
            observation[k, f] = x[f]
    return n
