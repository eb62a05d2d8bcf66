"""Start a job now: on free nodes, or in the place of jobs that it may preempt."""

from __future__ import annotations

import numpy as np

from clustertwin.core.compiled import borrowing
from clustertwin.workload.slurm.controller.controller_state import (
    ACTIVE,
    PENDING,
    PREEMPTED,
    PREEMPTIONS,
    QUEUED,
    RUNNING,
    SUSPENDED,
    UNSORTED,
    push_event,
    release,
    reservation_open,
    reserved_for_others,
    start_job,
)
from clustertwin.workload.slurm.controller.node_selection import change_resources, held_cores, select_nodes
from clustertwin.workload.slurm.controller.site_arrays import REQUEUE, SUSPEND
from clustertwin.workload.slurm.controller.stable_sort import sort_by_key

#: Results of `try_start`.
BUSY, STARTED, SKIPPED = range(3)


@borrowing
def copy_free(source, target):  # type: ignore[no-untyped-def]
    for i in range(len(source.nodes)):
        target.nodes[i] = source.nodes[i]
        for g in range(source.gres.shape[1]):
            target.gres[i, g] = source.gres[i, g]


@borrowing
def set_empty(arrays, target):  # type: ignore[no-untyped-def]
    """All nodes free."""
    for i in range(len(arrays.nodes)):
        target.nodes[i].cores = arrays.nodes[i].cores
        target.nodes[i].memory_mb = arrays.nodes[i].memory_mb
        target.nodes[i].jobs = 0
        target.nodes[i].unshared = 0
        for g in range(arrays.node_gres.shape[1]):
            target.gres[i, g] = arrays.node_gres[i, g]


@borrowing
def preemption_of(arrays, state, e, victim):  # type: ignore[no-untyped-def]
    """How the entry's job may preempt a running one; 0 if it may not."""
    jobs = arrays.jobs
    if state.live[victim].status != RUNNING or arrays.tuning[0].preempt == 0:
        return 0
    partition = arrays.entries[state.live[victim].entry].partition
    if arrays.tuning[0].preempt == 1:
        if arrays.partitions[partition].tier >= arrays.partitions[arrays.entries[e].partition].tier:
            return 0
        return arrays.partitions[partition].preempt_mode
    if not arrays.qos_preempts[jobs[arrays.entries[e].job].qos, jobs[victim].qos]:
        return 0
    return arrays.qos_mode[jobs[victim].qos]


@borrowing
def candidates(arrays, state, e, allowed):  # type: ignore[no-untyped-def]
    """Fill `state.victims` with the jobs to preempt on these nodes, in Slurm's order; returns their number."""
    found, keys, count = state.victims, state.victim_key, 0
    for k in range(state.counts[ACTIVE]):
        victim = state.active[k]
        if preemption_of(arrays, state, e, victim) == 0:
            continue
        size, touches = 0, False
        for row in range(arrays.jobs[victim].place_from, arrays.jobs[victim].place_to):
            i = state.place[row].node
            if i < 0:
                break
            size += 1
            touches |= allowed[i] == 1
        if touches:
            found[count] = victim
            if arrays.tuning[0].youngest_first:
                keys[victim] = -state.live[victim].start_s
            else:  # the lowest tier or QOS first, and of equal ones the job with the fewest nodes
                rank = arrays.qos_priority[arrays.jobs[victim].qos]
                if arrays.tuning[0].preempt == 1:
                    rank = arrays.partitions[arrays.entries[state.live[victim].entry].partition].tier
                keys[victim] = min(rank, 65535) * 65536.0 + size
            count += 1
    sort_by_key(found, keys, state.spare, count)
    return count


@borrowing
def take_resources(arrays, state, victim, mode, now_s):  # type: ignore[no-untyped-def]
    """Take a running job's resources away: suspend it, send it back to the queue or end it."""
    state.counts[PREEMPTIONS] += 1
    if mode == SUSPEND:
        state.live[victim].left_s = state.live[victim].end_s - now_s
        state.live[victim].end_s = np.inf
        change_resources(arrays, state.free, victim, state.place, 2)
        state.live[victim].status = SUSPENDED
        return
    release(arrays, state, victim, now_s)
    state.live[victim].restarts += 1
    if mode == REQUEUE and arrays.jobs[victim].requeue:
        state.live[victim].status = PENDING
        state.live[victim].begin_s = now_s + arrays.tuning[0].requeue_delay_s
        state.live[victim].start_s = np.nan
        state.live[victim].end_s = np.nan
        for e in range(arrays.jobs[victim].entry_from, arrays.jobs[victim].entry_to):
            state.queue[state.counts[QUEUED]] = e
            state.counts[QUEUED] += 1
            state.counts[UNSORTED] = 1
    else:
        state.live[victim].status = PREEMPTED
        state.live[victim].end_s = now_s


@borrowing
def _preempt_for(arrays, state, e, allowed, now_s):  # type: ignore[no-untyped-def]
    """Preempt as few jobs as make room for the entry's job; returns the number of nodes in `state.room`."""
    j = arrays.entries[e].job
    loaded = arrays.partitions[arrays.entries[e].partition].least_loaded
    n, order = candidates(arrays, state, e, allowed), state.victims
    for attempt in range(2):
        copy_free(state.free, state.future)
        last, count = -1, 0
        for k in range(n):
            sign = 2 if preemption_of(arrays, state, e, order[k]) == SUSPEND else 1
            change_resources(arrays, state.future, order[k], state.place, sign)
            count = select_nodes(arrays, j, state.future, allowed, state.work, loaded)
            if count > 0:
                last = k
                break
        if last < 0:
            return 0
        if attempt == 0:  # the job that made room goes first, so that others may be spared
            needed = order[last]
            for k in range(last, 0, -1):
                order[k] = order[k - 1]
            order[0] = needed
            continue
        for k in range(last + 1):
            hit = False
            for row in range(arrays.jobs[order[k]].place_from, arrays.jobs[order[k]].place_to):
                i = state.place[row].node
                if i < 0:
                    break
                hit |= state.work.room[i].chosen == 1
            if hit:
                take_resources(arrays, state, order[k], preemption_of(arrays, state, e, order[k]), now_s)
        return select_nodes(arrays, j, state.free, allowed, state.work, loaded)
    return 0


@borrowing
def ask_for(arrays, e):  # type: ignore[no-untyped-def]
    """Let the entry's job ask for what it does in this partition; its row holds that as long as it runs."""
    entry = arrays.entries[e]
    job = arrays.jobs[entry.job]
    job.limit_s = entry.limit_s
    job.nodes_min = entry.nodes_min
    job.nodes_max = entry.nodes_max
    job.nodes_wanted = entry.nodes_wanted
    job.tasks_on_node = entry.tasks_on_node
    job.cpus_on_node = entry.cpus_on_node
    job.memory_node_mb = entry.memory_node_mb
    job.memory_cpu_mb = entry.memory_cpu_mb
    job.exclusive = entry.exclusive
    job.required = entry.required
    job.forced = entry.forced
    job.cpus = entry.cpus
    job.cpus_per_task = entry.cpus_per_task


@borrowing
def try_start(arrays, state, e, now_s, allowed):  # type: ignore[no-untyped-def]
    """Start the entry's job on allowed nodes if it fits; `allowed` loses nodes that are reserved for others."""
    jobs, j = arrays.jobs, arrays.entries[e].job
    if not reservation_open(arrays, j, now_s):
        return SKIPPED
    reserved = reserved_for_others(arrays, j, now_s, now_s + jobs[j].limit_s, allowed)
    loaded = arrays.partitions[arrays.entries[e].partition].least_loaded
    count = select_nodes(arrays, j, state.free, allowed, state.work, loaded)
    if count == 0 and arrays.tuning[0].preempt > 0:
        count = _preempt_for(arrays, state, e, allowed, now_s)
    if count > 0:
        start_job(arrays, state, e, now_s, count)
        return STARTED
    if reserved:  # a job that only lacks reserved nodes does not hold up the partition
        set_empty(arrays, state.future)
        if select_nodes(arrays, j, state.future, allowed, state.work, loaded) == 0:
            return SKIPPED
    return BUSY


@borrowing
def resume_suspended(arrays, state, now_s):  # type: ignore[no-untyped-def]
    """Let suspended jobs go on whose cores are free again, the longest-running first."""
    for k in range(state.counts[ACTIVE]):
        j = state.active[k]
        if state.live[j].status != SUSPENDED:
            continue
        fits = True
        for row in range(arrays.jobs[j].place_from, arrays.jobs[j].place_to):
            i = state.place[row].node
            if i < 0:
                break
            cores = held_cores(arrays.jobs[j], arrays.nodes[i], state.place[row].cpus)
            fits &= state.free.nodes[i].cores >= cores
        if fits:
            change_resources(arrays, state.free, j, state.place, -2)
            state.live[j].status = RUNNING
            state.live[j].end_s = now_s + state.live[j].left_s
            push_event(state, state.live[j].end_s, j)
