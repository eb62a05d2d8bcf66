"""The next thing that happens: the machine's arrays -> the clock moved on, ends released, submissions queued.

Apart: every end and every submission is an event of its own, ends first, in the order of the starts. Together: all
that happens at one moment is seen before the next decision. Two published simulators differ here, and both are
reproduced to the job: pyss backfills after each event, RLScheduler picks with the whole moment in view.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clustertwin.workload.simulator.machine import NONE, enqueue, finish_first, release_due
from clustertwin.workload.simulator.usage import charge

# What `advance` found: nothing left, processors released, or only a submission.
OVER, RELEASED, SUBMITTED = 0, 1, 2


@njit
def next_event_s(clock, jobs, ends):  # type: ignore[no-untyped-def]
    """The next submission or end; infinity when nothing is left."""
    time_s = np.inf
    if clock.next < len(jobs):
        time_s = jobs[clock.next].submit_s
    if clock.ending > 0 and ends[0].end_s < time_s:
        time_s = ends[0].end_s
    return time_s


@njit
def advance(clock, jobs, ends, dues, queue, accounts, rank, together):  # type: ignore[no-untyped-def]
    """Go to the next event that can matter; gives what it was and, for a single submission, its rank."""
    while True:
        now_s = next_event_s(clock, jobs, ends)
        if now_s == np.inf:
            return OVER, NONE
        clock.now_s = now_s
        if together:
            while clock.ending > 0 and ends[0].end_s <= now_s:
                _finish(clock, jobs, ends, dues, accounts)
            while clock.next < len(jobs) and jobs[clock.next].submit_s <= now_s:
                enqueue(clock, queue, rank[clock.next])
                clock.next += 1
            return RELEASED, NONE
        # Who ends on time surprises nobody: the processors count as free from that moment, whichever end comes first.
        known = release_due(clock, jobs, dues)
        if clock.ending > 0 and ends[0].end_s <= now_s:
            if _finish(clock, jobs, ends, dues, accounts) or known > 0:
                return RELEASED, NONE
            continue
        newest = rank[clock.next]
        enqueue(clock, queue, newest)
        clock.next += 1
        return SUBMITTED, newest


@njit
def _finish(clock, jobs, ends, dues, accounts):  # type: ignore[no-untyped-def]
    """End one job; gives whether that released processors only now."""
    early = jobs[ends[0].job].released == 0
    job = jobs[finish_first(clock, jobs, ends, dues)]
    charge(accounts, job.user, -job.procs, clock.now_s)
    return early
