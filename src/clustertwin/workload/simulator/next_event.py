"""Advance the simulated machine to its next event: submissions enter the queue, ends free processors. Compiled.

Without backfilling, all events of a moment are processed before the next decision, as in RLScheduler. With EASY, every
submission and every end is an event of its own, and at one moment submissions come before ends, as in pyss. Both
simulators are reproduced job by job.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clustertwin.workload.simulator.fair_share import charge
from clustertwin.workload.simulator.machine_state import NONE, end_next_job, enqueue, release_expected

# The kinds of event that `advance` returns: no event is left, processors became free, a submission and nothing else.
OVER, RELEASED, SUBMITTED = 0, 1, 2


@njit
def next_event_s(state, jobs, end_events):  # type: ignore[no-untyped-def]
    """The time of the next submission or end; infinity if none is left."""
    time_s = np.inf
    if state.next_submission < len(jobs):
        time_s = jobs[state.next_submission].submit_s
    if state.ending > 0 and end_events[0].end_s < time_s:
        time_s = end_events[0].end_s
    return time_s


@njit
def advance(state, jobs, end_events, running, queue, accounts, rank, whole_moment):  # type: ignore[no-untyped-def]
    """Go to the next event that can change a decision. Returns its kind and, for a single submission, the job's rank.

    With `whole_moment`, process all events of that moment.
    """
    while True:
        now_s = next_event_s(state, jobs, end_events)
        if now_s == np.inf:
            return OVER, NONE
        state.now_s = now_s
        if whole_moment:
            while state.ending > 0 and end_events[0].end_s <= now_s:
                _end_job(state, jobs, end_events, running, accounts)
            while state.next_submission < len(jobs) and jobs[state.next_submission].submit_s <= now_s:
                enqueue(state, queue, rank[state.next_submission])
                state.next_submission += 1
            return RELEASED, NONE
        # An end at the expected time is no news: its processors are free from this moment, before its event comes.
        released = release_expected(state, jobs, running)
        if state.next_submission < len(jobs) and jobs[state.next_submission].submit_s <= now_s:
            newest = rank[state.next_submission]
            enqueue(state, queue, newest)
            state.next_submission += 1
            return RELEASED if released > 0 else SUBMITTED, newest
        if _end_job(state, jobs, end_events, running, accounts) or released > 0:
            return RELEASED, NONE


@njit
def _end_job(state, jobs, end_events, running, accounts):  # type: ignore[no-untyped-def]
    """End one job. Returns whether its processors become free only now."""
    early = jobs[end_events[0].job].released == 0
    job = jobs[end_next_job(state, jobs, end_events, running)]
    charge(accounts, job.user, -job.procs, state.now_s)
    return early
