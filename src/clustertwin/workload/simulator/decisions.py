"""The simulator stopped at each decision: machine + choice -> the next decision, and what waiting cost in between.

The same rules as `head.py` (a test holds them together), turned inside out for a learner: without backfilling any
waiting job may be picked and then blocks; with EASY a picked job that does not fit gets the reservation, and the next
choices are among those that may pass it, until something happens and the choice is made anew.
"""

from __future__ import annotations

import numpy as np
from numba import from_dtype, njit

from clustertwin.workload.policies.learned import FEATURES, features
from clustertwin.workload.policies.request import Now, Request
from clustertwin.workload.simulator.events import OVER, advance
from clustertwin.workload.simulator.head import may_pass
from clustertwin.workload.simulator.machine import NONE, dequeue, enqueue, fits, ready_s, reservation, start, tabulate
from clustertwin.workload.simulator.usage import ACCOUNT

#: What a decision is about, beside the machine.
PENDING = np.dtype(
    [
        ("passing", "i8"),  # whether the choice is who passes the head
        ("over", "i8"),
        ("shadow_s", "f8"),
        ("spare", "i8"),
        ("spare_gpus", "i8"),
        ("pressure", "f8"),  # slowdown per second of all that wait
        ("cost", "f8"),  # slowdown gathered since the last decision
    ]
)
PENDINGS = from_dtype(PENDING)[::1]
NO_ACCOUNTS = np.zeros(0, ACCOUNT)


@njit
def _candidate(clock, pending, job):  # type: ignore[no-untyped-def]
    if pending.passing:
        return may_pass(clock, job, pending.shadow_s, pending.spare, pending.spare_gpus)
    return True


@njit
def _any(clock, jobs, queue, pending):  # type: ignore[no-untyped-def]
    for at in range(clock.first, clock.last):  # noqa: SIM110, numba has no any()
        if _candidate(clock, pending, jobs[queue[at]]):
            return True
    return False


@njit
def _begin(clock, jobs, ends, dues, pending, which, bound_s):  # type: ignore[no-untyped-def]
    start(clock, jobs, ends, dues, which)
    pending.pressure -= 1.0 / max(jobs[which].run_s, bound_s)


@njit
def to_decision(clock, jobs, ends, dues, queue, accounts, ranks, pending, easy, bound_s):  # type: ignore[no-untyped-def]
    """Run until a choice is needed, or all jobs have started."""
    while True:
        if clock.head == NONE:
            pending.passing = 0
            if clock.last > clock.first:
                # With backfilling a choice changes nothing while nobody fits.
                fit = not easy
                for at in range(clock.first, clock.last):
                    if fit:
                        break
                    fit = fits(clock, jobs[queue[at]])
                if fit:
                    return
        elif fits(clock, jobs[clock.head]):
            _begin(clock, jobs, ends, dues, pending, clock.head, bound_s)
            clock.head = NONE
            continue
        elif easy:
            if pending.passing == 0:
                pending.shadow_s, pending.spare, pending.spare_gpus = reservation(clock, jobs, dues, jobs[clock.head])
                pending.passing = 1
            if _any(clock, jobs, queue, pending):
                return
        before_s, known = clock.now_s, clock.next
        what, _ = advance(clock, jobs, ends, dues, queue, accounts, ranks, not easy)
        if what == OVER:
            pending.over = 1
            return
        if known > 0:
            pending.cost += pending.pressure * (clock.now_s - before_s)
        for which in range(known, clock.next):
            pending.pressure += 1.0 / max(jobs[which].run_s, bound_s)
        if easy and clock.head != NONE:
            enqueue(clock, queue, clock.head)
            clock.head = NONE


@njit
def choose(clock, jobs, ends, dues, queue, pending, at, bound_s):  # type: ignore[no-untyped-def]
    """Take the job at this place of the queue: it starts, or it blocks, or it passes the head."""
    which = dequeue(clock, queue, at)
    if pending.passing == 0:
        clock.head = which
        return
    _begin(clock, jobs, ends, dues, pending, which, bound_s)
    if clock.now_s + jobs[which].estimate_s > pending.shadow_s:
        pending.spare -= jobs[which].procs
        pending.spare_gpus -= jobs[which].gpus


@njit
def look(clock, jobs, dues, queue, pending, procs, room, seen, places):  # type: ignore[no-untyped-def]
    """Fill `seen` (K, FEATURES) with the jobs to choose from and `places` (K,) with their places; gives how many.

    Where more wait than are seen: the older half of the view, and of the rest those that ask for least.
    """
    view = len(places)
    n = 0
    for at in range(clock.first, clock.last):
        if n == view:
            break
        if _candidate(clock, pending, jobs[queue[at]]):
            places[n] = at
            n += 1
    if n == view and places[n - 1] + 1 < clock.last:
        kept = view // 2
        n = kept
        area = np.empty(view)
        for at in range(places[kept], clock.last):
            job = jobs[queue[at]]
            asked = job.request_s * job.procs
            if (n == view and asked >= area[n - 1]) or not _candidate(clock, pending, job):
                continue
            n = min(n + 1, view)
            k = n - 1
            while k > kept and area[k - 1] > asked:
                area[k], places[k] = area[k - 1], places[k - 1]
                k -= 1
            area[k], places[k] = asked, at
    tabulate(clock, jobs, dues, room)
    now = Now(clock.now_s, float(clock.free), float(clock.free_gpus), float(procs), float(clock.last - clock.first))
    for k in range(n):
        job = jobs[queue[places[k]]]
        request = Request(
            job.submit_s,
            job.request_s,
            float(job.procs),
            float(job.gpus),
            float(job.user),
            float(job.group),
            float(job.queue),
            0.0,
            ready_s(clock, dues, room, job),
        )
        x = features(request, now)
        for f in range(FEATURES):
            seen[k, f] = x[f]
    return n
