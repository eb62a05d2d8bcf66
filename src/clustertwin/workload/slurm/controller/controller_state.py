"""What slurmctld knows at a moment: free resources, running jobs, the queue, usage; how starts and ends change it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustertwin.core.compiled import borrowing
from clustertwin.workload.slurm.controller.job_priority import FairShareRoom, charge, new_fair_share_room
from clustertwin.workload.slurm.controller.node_selection import (
    Free,
    Workspace,
    all_free,
    change_resources,
    new_workspace,
)
from clustertwin.workload.slurm.controller.site_arrays import (
    AFTER,
    AFTERANY,
    AFTEROK,
    Bytes,
    Floats,
    Ints,
    Rows,
    SiteArrays,
)

#: What became of a job so far.
ABSENT, PENDING, RUNNING, ENDED, SUSPENDED, REJECTED, WITHDRAWN, PREEMPTED = range(8)
#: Slots of `counts`.
QUEUED, ACTIVE, EVENTS, PREEMPTIONS, BACKFILLED, CYCLES, TESTS, CHANGED, UNSORTED = range(9)


LIVE = np.dtype(
    [
        ("status", np.int64), ("start_s", np.float64), ("end_s", np.float64), ("limit_end_s", np.float64),
        ("left_s", np.float64), ("begin_s", np.float64), ("restarts", np.int64), ("entry", np.int64),
        ("by_backfill", np.int64), ("charged_s", np.float64),
    ]
)  # fmt: skip
PLACE = np.dtype([("node", np.int64), ("cpus", np.int64)])
EVENT = np.dtype([("when_s", np.float64), ("job", np.int64)])


class ControllerState(NamedTuple):
    """Arrays that change as time passes.

    A live row holds when the time limit ends a job, the run time left of a suspended one, the entry by which it runs,
    and until when its usage is counted.
    """

    free: Free
    future: Free  # a copy to look ahead with
    work: Workspace
    live: Rows  # (job,)
    place: Rows  # where jobs run; jobs[j].place_from is the first row of job j
    used: Floats  # (counter, tres + 1)
    submitted: Floats  # (counter,)
    queue: Ints  # entries, best first
    priority: Floats  # (entry,)
    active: Ints  # running and suspended jobs
    usage: Floats  # (association,)
    fair_share: Floats
    events: Rows  # a heap of ends
    counts: Ints
    rank: Floats  # (entry,): minus the place in the queue
    spare: Ints  # room to sort the queue
    victims: Ints  # room for jobs that one may preempt
    victim_key: Floats  # (job,)
    failed: Ints  # (partition,): closed for the rest of a pass
    allowed: Bytes  # (node,)
    blocked: Bytes
    fair_share_room: FairShareRoom


def new_state(arrays: SiteArrays) -> ControllerState:
    jobs, entries, shares = len(arrays.jobs), len(arrays.entries), len(arrays.shares)
    live = np.zeros(jobs, LIVE)
    live["start_s"] = live["end_s"] = np.nan
    live["limit_end_s"] = np.inf
    live["begin_s"] = arrays.jobs["begin_s"]
    place = np.zeros(int(arrays.jobs["place_to"].max(initial=0)), PLACE)
    place["node"] = -1
    return ControllerState(
        all_free(arrays), all_free(arrays), new_workspace(arrays), live, place,
        np.zeros((arrays.counters, arrays.limit_rows.shape[1])), np.zeros(arrays.counters),
        np.zeros(2 * entries + 1, np.int64), np.zeros(entries), np.zeros(jobs + 1, np.int64), np.zeros(shares),
        np.ones(shares), np.zeros(8 * jobs + 1024, EVENT), np.zeros(9, np.int64), np.zeros(entries),
        np.zeros(2 * entries + 1, np.int64), np.zeros(jobs + 1, np.int64), np.zeros(jobs),
        np.zeros(len(arrays.partitions), np.int64), np.zeros(len(arrays.nodes), np.uint8),
        np.zeros(len(arrays.nodes), np.uint8), new_fair_share_room(shares),
    )  # fmt: skip


@borrowing
def push_event(state, when_s, job):  # type: ignore[no-untyped-def]
    """Add an end to the heap."""
    events = state.events
    if state.counts[EVENTS] == len(events):  # build the heap again from the ends that still hold
        state.counts[EVENTS] = 0
        for k in range(len(events)):
            other, other_s = events[k].job, events[k].when_s
            if state.live[other].status == RUNNING and state.live[other].end_s == other_s:
                _sift_up(state, other_s, other)
    _sift_up(state, when_s, job)


@borrowing
def _sift_up(state, when_s, job):  # type: ignore[no-untyped-def]
    events, k = state.events, state.counts[EVENTS]
    state.counts[EVENTS] += 1
    while k > 0 and events[(k - 1) // 2].when_s > when_s:
        events[k].when_s = events[(k - 1) // 2].when_s
        events[k].job = events[(k - 1) // 2].job
        k = (k - 1) // 2
    events[k].when_s = when_s
    events[k].job = job


@borrowing
def pop_event(state):  # type: ignore[no-untyped-def]
    """Remove the first end and return its job."""
    events = state.events
    job = events[0].job
    state.counts[EVENTS] -= 1
    n = state.counts[EVENTS]
    when_s, last = events[n].when_s, events[n].job
    k = 0
    while 2 * k + 1 < n:
        child = 2 * k + 1
        if child + 1 < n and events[child + 1].when_s < events[child].when_s:
            child += 1
        if events[child].when_s >= when_s:
            break
        events[k].when_s = events[child].when_s
        events[k].job = events[child].job
        k = child
    events[k].when_s = when_s
    events[k].job = last
    return job


@borrowing
def within_limits(arrays, state, e):  # type: ignore[no-untyped-def]
    """Whether QOS and associations let the entry's job start now."""
    entry = arrays.entries[e]
    for k in range(entry.limit_from, entry.limit_to):
        counter, row = arrays.pairs[k, 0], arrays.pairs[k, 1]
        for t in range(arrays.limit_rows.shape[1]):
            if state.used[counter, t] + arrays.job_tres[entry.job, t] > arrays.limit_rows[row, t]:
                return False
    return True


@borrowing
def count_use(arrays, state, e, sign):  # type: ignore[no-untyped-def]
    """Add a start to the counters of an entry, or take it back."""
    entry = arrays.entries[e]
    for k in range(entry.limit_from, entry.limit_to):
        for t in range(arrays.job_tres.shape[1]):
            state.used[arrays.pairs[k, 0], t] += sign * arrays.job_tres[entry.job, t]


@borrowing
def satisfied(arrays, state, j):  # type: ignore[no-untyped-def]
    """Whether the jobs that job j depends on have started or ended as it asks."""
    jobs = arrays.jobs
    for k in range(jobs[j].link_from, jobs[j].link_to):
        kind, other = arrays.links[k, 0], arrays.links[k, 1]
        status = state.live[other].status
        if kind == AFTER:
            if status in (ABSENT, PENDING):
                return False
        elif status not in (ENDED, WITHDRAWN, REJECTED, PREEMPTED):
            return False
        elif kind != AFTERANY:
            timed_out = state.live[other].end_s >= state.live[other].limit_end_s
            good = status == ENDED and jobs[other].succeeds == 1 and not timed_out
            if good != (kind == AFTEROK):
                return False
    return True


@borrowing
def start_job(arrays, state, e, now_s, count):  # type: ignore[no-untyped-def]
    """Start the entry's job on the nodes of `state.room`."""
    jobs, j = arrays.jobs, arrays.entries[e].job
    first = jobs[j].place_from
    for k in range(first, jobs[j].place_to):
        state.place[k].node = -1
    for k in range(count):
        state.place[first + k].node = state.work.room[k].node
        state.place[first + k].cpus = state.work.room[k].cpus
    change_resources(arrays, state.free, j, state.place, -1)
    count_use(arrays, state, e, 1.0)
    limit_s = jobs[j].limit_s
    state.live[j].status = RUNNING
    state.live[j].start_s = now_s
    last_s = np.inf  # a job ends with its reservation
    if jobs[j].reservation >= 0:
        last_s = arrays.reservation_s[jobs[j].reservation, 1]
    state.live[j].limit_end_s = min(now_s + limit_s, last_s)
    state.live[j].end_s = min(now_s + min(jobs[j].run_s, limit_s + arrays.tuning[0].over_time_s), last_s)
    state.live[j].charged_s = now_s
    state.active[state.counts[ACTIVE]] = j
    state.counts[ACTIVE] += 1
    state.counts[CHANGED] = 1
    state.live[j].entry = e
    push_event(state, state.live[j].end_s, j)


@borrowing
def charge_usage(arrays, state, j, now_s):  # type: ignore[no-untyped-def]
    """Count a running job's usage up to now, decayed as Slurm decays it."""
    seconds = max(now_s - state.live[j].charged_s, 0.0)
    amount = seconds * arrays.tuning[0].decay_per_s ** seconds * arrays.jobs[j].billing
    charge(arrays.shares, state.usage, arrays.jobs[j].association, amount)
    state.live[j].charged_s = now_s


@borrowing
def release(arrays, state, j, now_s):  # type: ignore[no-untyped-def]
    """Give back what a running job holds."""
    charge_usage(arrays, state, j, now_s)
    if state.live[j].status == SUSPENDED:  # its cores are free already: take them, so that giving all back is right
        change_resources(arrays, state.free, j, state.place, -2)
    change_resources(arrays, state.free, j, state.place, 1)
    count_use(arrays, state, state.live[j].entry, -1.0)
    for k in range(state.counts[ACTIVE]):
        if state.active[k] == j:
            for m in range(k, state.counts[ACTIVE] - 1):
                state.active[m] = state.active[m + 1]
            break
    state.counts[ACTIVE] -= 1
    state.counts[CHANGED] = 1


@borrowing
def reserved_for_others(arrays, j, from_s, until_s, allowed):  # type: ignore[no-untyped-def]
    """Clear nodes of reservations that the job is not part of and would run into; returns whether any was cleared."""
    cleared = False
    for r in range(len(arrays.reservation_s)):
        start_s, end_s = arrays.reservation_s[r, 0], arrays.reservation_s[r, 1]
        if r == arrays.jobs[j].reservation or start_s >= until_s or end_s <= from_s:
            continue
        for i in range(len(allowed)):
            if allowed[i] and arrays.reservation_nodes[r, i]:
                allowed[i] = 0
                cleared = True
    return cleared


@borrowing
def reservation_open(arrays, j, now_s):  # type: ignore[no-untyped-def]
    """Whether the job's own reservation, if it has one, holds now."""
    r = arrays.jobs[j].reservation
    return r < 0 or arrays.reservation_s[r, 0] <= now_s < arrays.reservation_s[r, 1]
