"""EASY backfilling with predicted run times: jobs + history -> start times. Compiled.

Each job is planned with a prediction that is made when it is submitted, from the jobs that had ended by then. A job
that runs past its prediction gets a longer one, up to its limit. A prediction may be too short, so a reservation may
slip. Once the head of the queue has waited `patience_s` longer than its first reservation, jobs are backfilled by
their limits until the head starts.
"""

from __future__ import annotations

import numpy as np
from numba import float64, from_dtype, njit, void

from clustertwin.core.compiled import compiled_for
from clustertwin.workload.run_times.run_time_history import HISTORY, KEPT, recent_runs, remember
from clustertwin.workload.simulator.easy_backfilling import can_backfill
from clustertwin.workload.simulator.machine_state import (
    MACHINE_STATE,
    NONE,
    dequeue,
    end_next_job,
    enqueue,
    fits,
    head_reservation,
    release_expected,
    start_job,
)
from clustertwin.workload.simulator.next_event import next_event_s

#: How run times are estimated.
REQUESTED, LAST_TWO, PREDICTED = range(3)
#: One row: the geometric mean of `recent` jobs of a class that has `least` of them, times `scale`.
RULES = np.dtype(
    [("kind", "i8"), ("recent", "i8"), ("least", "i8"), ("shortest", "i8"), ("patience_s", "f8"), ("scale", "f8")]
)
#: Seconds by which a prediction that was exceeded grows, one step after another.
STEPS_S = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18_000.0, 36_000.0, 72_000.0, 180_000.0, 360_000.0)


@njit
def _predict_s(rules, history, index, job, found):  # type: ignore[no-untyped-def]
    """The run time to plan a job with: at least a second, at most its limit."""
    limit_s = max(job.request_s, 1.0)
    if rules.kind == REQUESTED:
        return limit_s
    if rules.kind == LAST_TWO:
        codes, rings, counts = history
        c = codes[index, 3]
        if counts[c] == 0:
            return limit_s
        n = min(counts[c], 2)
        total = 0.0
        for k in range(n):
            total += rings[c, (counts[c] - 1 - k) % rings.shape[1]]
        return min(max(total / n, 1.0), limit_s)
    n, _ = recent_runs(history, index, limit_s, 0.0, rules.least, found)
    if n == 0:
        return limit_s
    n = min(n, rules.recent)
    total = 0.0
    for k in range(n):
        total += np.log(max(found[k], 1.0))
    return min(max(rules.scale * np.exp(total / n), 1.0), limit_s)


@njit
def _correct(state, jobs, running, until_s, corrections):  # type: ignore[no-untyped-def]
    """Give the first job that runs past its prediction a longer one; returns whether there was one until then."""
    for at in range(state.running):
        if running[at].expected_end_s > until_s:
            return False
        index, expected_s = running[at].job, running[at].expected_end_s
        job = jobs[index]
        if job.start_s + job.run_s <= expected_s:
            continue
        step = min(corrections[index], len(STEPS_S) - 1)
        corrections[index] += 1
        longer_s = expected_s + STEPS_S[step]
        limit_end_s = job.start_s + job.request_s
        if limit_end_s > expected_s:
            longer_s = min(longer_s, limit_end_s)
        job.estimate_s = longer_s - job.start_s
        state.now_s = expected_s
        while at + 1 < state.running and running[at + 1].expected_end_s <= longer_s:
            running[at] = running[at + 1]
            at += 1
        running[at].expected_end_s = longer_s
        running[at].job = index
        return True
    return False


@njit
def _limit_shadow(state, jobs, running, head):  # type: ignore[no-untyped-def]
    """As `head_reservation`, if running jobs end at their limits."""
    ends = np.empty(state.running)
    for i in range(state.running):
        job = jobs[running[i].job]
        ends[i] = max(job.start_s + job.request_s, running[i].expected_end_s)
    order = np.argsort(ends)
    free_procs, free_gpus, shadow_s = state.free_procs, state.free_gpus, np.inf
    for i in range(len(order)):
        if ends[order[i]] > shadow_s:
            break
        free_procs += jobs[running[order[i]].job].procs
        free_gpus += jobs[running[order[i]].job].gpus
        if free_procs >= head.procs and free_gpus >= head.gpus:
            shadow_s = ends[order[i]]
    return shadow_s, free_procs - head.procs, free_gpus - head.gpus


@njit
def _can_start(state, job, shadow_s, extra_procs, extra_gpus, by_limit):  # type: ignore[no-untyped-def]
    if by_limit:
        length_s = max(job.request_s, job.estimate_s)
        fine = state.now_s + length_s <= shadow_s or (job.procs <= extra_procs and job.gpus <= extra_gpus)
        return fits(state, job) and fine
    return can_backfill(state, job, shadow_s, extra_procs, extra_gpus)


@compiled_for(void(MACHINE_STATE, HISTORY, from_dtype(RULES)[::1], float64[::1]))
def run_predicted(machine, history, rule_rows, first_shadow_s):  # type: ignore[no-untyped-def]
    """Simulate until all jobs have ended, first come first served; `first_shadow_s` gets each head's first promise."""
    states, jobs, end_events, running, queue, _accounts, _availability = machine
    state, rules = states[0], rule_rows[0]
    corrections = np.zeros(len(jobs), np.int64)
    found = np.zeros(KEPT)
    while True:
        event_s = next_event_s(state, jobs, end_events)
        if event_s == np.inf:
            return
        if not _correct(state, jobs, running, event_s, corrections):
            state.now_s = event_s
            released = release_expected(state, jobs, running)
            if state.next_submission < len(jobs) and jobs[state.next_submission].submit_s <= event_s:
                index = state.next_submission
                job = jobs[index]
                job.estimate_s = _predict_s(rules, history, index, job, found)
                if rules.kind == REQUESTED:
                    job.estimate_s = max(job.estimate_s, job.run_s)
                enqueue(state, queue, index)
                state.next_submission += 1
            else:
                early = jobs[end_events[0].job].released == 0
                index = end_next_job(state, jobs, end_events, running)
                remember(history, index, jobs[index].run_s, jobs[index].request_s)
                if not early and released == 0:
                    continue
        while state.queue_start < state.queue_end and fits(state, jobs[queue[state.queue_start]]):
            start_job(state, jobs, end_events, running, dequeue(state, queue, state.queue_start))
        if state.queue_end - state.queue_start < 2 or state.free_procs == 0:
            continue
        head = queue[state.queue_start]
        shadow_s, extra_procs, extra_gpus = head_reservation(state, jobs, running, jobs[head])
        first_shadow_s[head] = min(first_shadow_s[head], shadow_s)
        by_limit = state.now_s > first_shadow_s[head] + rules.patience_s
        if by_limit:
            shadow_s, extra_procs, extra_gpus = _limit_shadow(state, jobs, running, jobs[head])
        while state.free_procs > 0:
            best, shortest_s = NONE, np.inf
            for at in range(state.queue_start + 1, state.queue_end):
                job = jobs[queue[at]]
                if job.estimate_s < shortest_s and _can_start(state, job, shadow_s, extra_procs, extra_gpus, by_limit):
                    best, shortest_s = at, job.estimate_s
                    if not rules.shortest:
                        break
            if best == NONE:
                break
            index = dequeue(state, queue, best)
            start_job(state, jobs, end_events, running, index)
            length_s = max(jobs[index].request_s, jobs[index].estimate_s) if by_limit else jobs[index].estimate_s
            if state.now_s + length_s > shadow_s:
                extra_procs -= jobs[index].procs
                extra_gpus -= jobs[index].gpus
