"""The loop of slurmctld: submissions, ends and scheduler turns in order of time.

The main scheduler runs after each end and shortly after submissions; it goes down the queue and leaves a
partition alone once a job of it cannot start. The backfill scheduler runs at its interval if anything has changed.
"""

from __future__ import annotations

import numpy as np

from clustertwin.core.compiled import borrowing
from clustertwin.workload.slurm.controller.backfill import backfill_cycle
from clustertwin.workload.slurm.controller.controller_state import (
    ACTIVE,
    CHANGED,
    ENDED,
    EVENTS,
    PENDING,
    QUEUED,
    REJECTED,
    RUNNING,
    SUSPENDED,
    UNSORTED,
    WITHDRAWN,
    charge_usage,
    pop_event,
    release,
    satisfied,
    within_limits,
)
from clustertwin.workload.slurm.controller.job_priority import classic_fair_share, priority_of, rank_users
from clustertwin.workload.slurm.controller.job_start import BUSY, STARTED, ask_for, resume_suspended, try_start
from clustertwin.workload.slurm.controller.stable_sort import sort_by_key


@borrowing
def _set_priority(arrays, state, e, now_s):  # type: ignore[no-untyped-def]
    jobs, j = arrays.jobs, arrays.entries[e].job
    since_s = jobs[j].submit_s if arrays.tuning[0].accrue_always else max(jobs[j].submit_s, state.live[j].begin_s)
    fair = state.fair_share[jobs[j].association]
    value = priority_of(arrays.tuning[0], arrays.entries[e].priority, now_s - since_s, fair)
    if not arrays.tuning[0].increase_only or value > state.priority[e]:
        state.priority[e] = value


@borrowing
def _rank(arrays, state, e):  # type: ignore[no-untyped-def]
    """A number that orders the queue: reservations, then the partition's tier, then priority."""
    reserved = 2.0**50 if arrays.jobs[arrays.entries[e].job].reservation >= 0 else 0.0
    return reserved + arrays.partitions[arrays.entries[e].partition].tier * 2.0**33 + state.priority[e]


@borrowing
def sort_queue(arrays, state):  # type: ignore[no-untyped-def]
    """Drop entries of jobs that no longer wait; sort the others if their order may have changed.

    Entries of equal rank stand in the order of submission.
    """
    kept = 0
    for q in range(state.counts[QUEUED]):
        if state.live[arrays.entries[state.queue[q]].job].status == PENDING:
            state.queue[kept] = state.queue[q]
            kept += 1
    state.counts[QUEUED] = kept
    if not state.counts[UNSORTED]:
        return
    state.counts[UNSORTED] = 0
    for q in range(kept):
        state.rank[state.queue[q]] = state.queue[q]
    sort_by_key(state.queue, state.rank, state.spare, kept)
    for q in range(kept):
        state.rank[state.queue[q]] = -_rank(arrays, state, state.queue[q])
    sort_by_key(state.queue, state.rank, state.spare, kept)


@borrowing
def _enqueue(arrays, state, e):  # type: ignore[no-untyped-def]
    """Insert one entry behind those that are at least as good."""
    rank, n = _rank(arrays, state, e), state.counts[QUEUED]
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if _rank(arrays, state, state.queue[middle]) >= rank:
            low = middle + 1
        else:
            high = middle
    for q in range(n, low, -1):
        state.queue[q] = state.queue[q - 1]
    state.queue[low] = e
    state.counts[QUEUED] = n + 1


@borrowing
def recalculate(arrays, state, elapsed_s, now_s):  # type: ignore[no-untyped-def]
    """Decay and count usage, then set every waiting job's priority anew, as the decay thread does."""
    tuning = arrays.tuning[0]
    decay = tuning.decay_per_s**elapsed_s
    for a in range(len(state.usage)):
        state.usage[a] *= decay
    for k in range(state.counts[ACTIVE]):
        if state.live[state.active[k]].status == RUNNING:
            charge_usage(arrays, state, state.active[k], now_s)
    if tuning.weight_fair_share != 0.0:
        if tuning.fair_tree:
            rank_users(arrays.shares, arrays.children, state.usage, state.fair_share, state.fair_share_room)
        else:
            classic_fair_share(arrays.shares, state.usage, state.fair_share, tuning.dampening, state.fair_share_room)
    for q in range(state.counts[QUEUED]):
        _set_priority(arrays, state, state.queue[q], now_s)
    state.counts[UNSORTED] = 1
    sort_queue(arrays, state)


@borrowing
def _submit(arrays, state, j, now_s):  # type: ignore[no-untyped-def]
    """Put a job into the queue, unless a limit on submissions refuses it or it runs from the first moment on."""
    jobs = arrays.jobs
    runs = state.live[j].status == RUNNING
    for k in range(jobs[j].submit_from, jobs[j].submit_to):
        if not runs and state.submitted[int(arrays.submits[k, 0])] + 1 > arrays.submits[k, 1]:
            state.live[j].status = REJECTED
            return
    for k in range(jobs[j].submit_from, jobs[j].submit_to):
        state.submitted[int(arrays.submits[k, 0])] += 1
    if runs:
        return
    state.live[j].status = PENDING
    state.counts[CHANGED] = 1
    for e in range(jobs[j].entry_from, jobs[j].entry_to):
        _set_priority(arrays, state, e, now_s)
        _enqueue(arrays, state, e)


@borrowing
def _next_reservation(arrays, now_s):  # type: ignore[no-untyped-def]
    """When the next advance reservation begins or ends."""
    best = np.inf
    for r in range(len(arrays.reservation_s)):
        for k in range(2):
            if now_s < arrays.reservation_s[r, k] < best:
                best = arrays.reservation_s[r, k]
    return best


@borrowing
def _leave(arrays, state, j):  # type: ignore[no-untyped-def]
    """A job leaves the system."""
    jobs = arrays.jobs
    for k in range(jobs[j].submit_from, jobs[j].submit_to):
        state.submitted[int(arrays.submits[k, 0])] -= 1
    state.counts[CHANGED] = 1


@borrowing
def _close(arrays, failed, blocked, p):  # type: ignore[no-untyped-def]
    """Close a partition and block its nodes for the rest of a pass."""
    failed[p] = 1
    for i in range(len(blocked)):
        blocked[i] |= arrays.partition_nodes[p, i]


@borrowing
def main_pass(arrays, state, now_s, depth, allowed, blocked):  # type: ignore[no-untyped-def]
    """Start jobs in the queue's order; a job that does not fit closes its partition for this pass."""
    entries, jobs = arrays.entries, arrays.jobs
    failed = state.failed
    for p in range(len(failed)):
        failed[p] = 0
    for i in range(len(blocked)):
        blocked[i] = 0
    seen, closed, array, array_partition = 0, 0, -1, -1
    for q in range(state.counts[QUEUED]):
        e = state.queue[q]
        j, p = entries[e].job, entries[e].partition
        if state.live[j].status != PENDING or state.live[j].begin_s > now_s:
            continue
        if jobs[j].array > 0 and jobs[j].array == array and p == array_partition:
            continue
        seen += 1
        if seen > depth or closed == len(failed):
            break
        if (failed[p] and jobs[j].reservation < 0) or not arrays.partitions[p].schedules:
            continue
        if jobs[j].link_from < jobs[j].link_to and not satisfied(arrays, state, j):
            continue
        if jobs[j].array > 0:
            array, array_partition = jobs[j].array, p
        if not within_limits(arrays, state, e):
            if arrays.tuning[0].assoc_limit_stop:
                _close(arrays, failed, blocked, p)
                closed += 1
            continue
        ask_for(arrays, e)
        mask, there = entries[e].mask, 0
        for i in range(len(allowed)):
            allowed[i] = arrays.masks[mask, i]
            if blocked[i]:
                allowed[i] = 0
            elif arrays.nodes[i].up:
                there += arrays.partition_nodes[p, i]
        if there < jobs[j].nodes_min:  # closed partitions hold too many of its nodes
            if jobs[j].reservation < 0:
                _close(arrays, failed, blocked, p)
                closed += 1
            continue
        result = try_start(arrays, state, e, now_s, allowed)
        if result == STARTED:
            array = -1
        elif result == BUSY and jobs[j].reservation < 0:
            _close(arrays, failed, blocked, p)
            closed += 1


@borrowing
def run_events(arrays, state, space, cancels):  # type: ignore[no-untyped-def]
    """Play all jobs; `cancels` lists waiting jobs that are withdrawn, by time."""
    jobs, tuning = arrays.jobs, arrays.tuning[0]
    n = len(jobs)
    allowed, blocked = state.allowed, state.blocked
    arrived, withdrawn = 0, 0
    calc_s, calc_done_s = 0.0, 0.0
    quick_s, full_s, pass_s = np.inf, tuning.sched_interval, -np.inf
    booked_s = _next_reservation(arrays, -np.inf)
    bf_s = tuning.bf_phase_s if tuning.bf_phase_s > 0 else tuning.bf_interval
    recalculate(arrays, state, 0.0, 0.0)
    while True:
        submit_s = jobs[arrived].submit_s if arrived < n else np.inf
        end_s = state.events[0].when_s if state.counts[EVENTS] > 0 else np.inf
        cancel_s = jobs[cancels[withdrawn]].cancel_s if withdrawn < len(cancels) else np.inf
        outside_s = min(submit_s, end_s, cancel_s)
        waiting = state.counts[QUEUED] > 0
        if outside_s == np.inf and (not waiting or _stuck(arrays, state, bf_s)):
            break
        if not waiting:  # nothing to schedule before the next submission or end
            now_s = outside_s
            bf_s += max(np.ceil((now_s - bf_s) / tuning.bf_interval), 0.0) * tuning.bf_interval
            full_s += max(np.ceil((now_s - full_s) / tuning.sched_interval), 0.0) * tuning.sched_interval
        else:
            now_s = min(outside_s, quick_s, full_s, bf_s, calc_s, booked_s)
        if booked_s <= now_s:
            booked_s = _next_reservation(arrays, now_s)
            quick_s = now_s
            state.counts[CHANGED] = 1
        if calc_s <= now_s:
            # Periods that passed in between give the same usage in one step.
            periods = np.floor((now_s - calc_s) / tuning.calc_period_s)
            calc_s += periods * tuning.calc_period_s
            recalculate(arrays, state, calc_s - calc_done_s, calc_s)
            calc_done_s = calc_s
            calc_s += tuning.calc_period_s
            state.counts[CHANGED] = 1
        ended = False
        while state.counts[EVENTS] > 0 and state.events[0].when_s <= now_s:
            when_s = state.events[0].when_s
            j = pop_event(state)
            if state.live[j].status == RUNNING and state.live[j].end_s == when_s:
                release(arrays, state, j, when_s)
                state.live[j].status = ENDED
                _leave(arrays, state, j)
                ended = True
        if ended and tuning.preempt > 0:
            resume_suspended(arrays, state, now_s)
        while withdrawn < len(cancels) and jobs[cancels[withdrawn]].cancel_s <= now_s:
            j = cancels[withdrawn]
            if state.live[j].status == PENDING:
                state.live[j].status = WITHDRAWN
                state.live[j].end_s = now_s
                _leave(arrays, state, j)
            withdrawn += 1
        if ended and state.counts[QUEUED] > 0:
            sort_queue(arrays, state)
            main_pass(arrays, state, now_s, tuning.queue_depth, allowed, blocked)
        while arrived < n and jobs[arrived].submit_s <= now_s:
            _submit(arrays, state, arrived, now_s)
            # Batch jobs wait for the main scheduler's next turn, which keeps a distance from the last one.
            quick_s = min(quick_s, max(now_s, pass_s + tuning.batch_sched_delay))
            arrived += 1
        if quick_s <= now_s:
            quick_s, pass_s = np.inf, now_s
            main_pass(arrays, state, now_s, tuning.queue_depth, allowed, blocked)
        if full_s <= now_s:
            full_s, pass_s = full_s + tuning.sched_interval, now_s
            main_pass(arrays, state, now_s, n + 1, allowed, blocked)
        if bf_s <= now_s:
            bf_s += tuning.bf_interval
            if tuning.backfill and state.counts[CHANGED]:
                sort_queue(arrays, state)
                state.counts[CHANGED] = 0
                backfill_cycle(arrays, state, space, now_s)
    return 0


@borrowing
def _stuck(arrays, state, bf_s):  # type: ignore[no-untyped-def]
    """Whether jobs wait that nothing to come will let start: none runs, and none becomes eligible later."""
    for k in range(state.counts[ACTIVE]):
        if state.live[state.active[k]].status in (RUNNING, SUSPENDED):
            return False
    latest_s = 0.0
    for q in range(state.counts[QUEUED]):
        j = arrays.entries[state.queue[q]].job
        if state.live[j].status == PENDING and state.live[j].begin_s < np.inf:
            latest_s = max(latest_s, state.live[j].begin_s)
    for r in range(len(arrays.reservation_s)):
        if arrays.reservation_s[r, 1] < np.inf:
            latest_s = max(latest_s, arrays.reservation_s[r, 1])
    return bf_s > latest_s + 2 * max(arrays.tuning[0].bf_interval, arrays.tuning[0].sched_interval)
