"""sched/backfill: one cycle over the queue, with whole nodes kept for jobs that cannot start yet.

Each pending job is tested against the nodes that no better job has planned for its time. A job that fits now starts;
another gets its nodes planned from when running jobs, at their time limits, make room.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustertwin.core.compiled import borrowing
from clustertwin.workload.slurm.controller.controller_state import (
    ACTIVE,
    BACKFILLED,
    CYCLES,
    PENDING,
    QUEUED,
    TESTS,
    reserved_for_others,
    satisfied,
    within_limits,
)
from clustertwin.workload.slurm.controller.job_start import STARTED, ask_for, copy_free, preemption_of, try_start
from clustertwin.workload.slurm.controller.node_selection import (
    change_resources,
    held_cores,
    held_memory_mb,
    select_nodes,
)
from clustertwin.workload.slurm.controller.site_arrays import SUSPEND, Bytes, Floats, Ints, Rows, SiteArrays
from clustertwin.workload.slurm.controller.stable_sort import sort_by_key

#: A job is tried at most so often at later times in a cycle.
MOST_TRIES = 10_000


#: Nodes in a word of a set; the sign bit is not used.
WORD_BITS = 62

HELD = np.dtype([("node", np.int64), ("cores", np.int64), ("memory_mb", np.float64)])


class NodeSpace(NamedTuple):
    """Which nodes are free of plans, in stretches of time that are linked in order."""

    begin_s: Floats
    end_s: Floats
    next: Ints
    avail: Ints  # (stretch, word): sets of nodes, one bit each
    stretches: Ints  # (1,): how many there are
    by_user: Ints
    by_partition: Ints
    order: Ints  # running jobs by the end of their limits
    limit_end_s: Floats  # (job,)
    held: Rows  # what they hold, node by node, in the same order
    held_from: Ints
    kind_s: Floats  # (kind,): the first time worth a test for an entry of this kind in this cycle
    allowed: Bytes  # (node,)
    allowed_bits: Ints  # (word,)
    picked_bits: Ints


def new_node_space(arrays: SiteArrays) -> NodeSpace:
    size, nodes = int(arrays.tuning["bf_node_space_size"][0]) + 8, len(arrays.nodes)
    words = nodes // WORD_BITS + 1
    users = int(arrays.jobs["user"].max(initial=0)) + 1
    return NodeSpace(
        np.zeros(size), np.zeros(size), np.zeros(size, np.int64), np.zeros((size, words), np.int64),
        np.zeros(1, np.int64), np.zeros(users, np.int64), np.zeros(len(arrays.partitions), np.int64),
        np.zeros(len(arrays.jobs) + 1, np.int64), np.zeros(len(arrays.jobs)),
        np.zeros(int(arrays.jobs["place_to"].max(initial=0)) + 1, HELD),
        np.zeros(len(arrays.jobs) + 2, np.int64), np.zeros(int(arrays.entries["kind"].max(initial=0)) + 1),
        np.zeros(nodes, np.uint8), np.zeros(words, np.int64), np.zeros(words, np.int64),
    )  # fmt: skip


@borrowing
def _sort_running(arrays, state, space):  # type: ignore[no-untyped-def]
    """List running jobs by the end of their limits, with what each holds."""
    n = state.counts[ACTIVE]
    for k in range(n):
        space.order[k] = state.active[k]
        space.limit_end_s[state.active[k]] = state.live[state.active[k]].limit_end_s
    sort_by_key(space.order, space.limit_end_s, state.spare, n)
    nodes, m = arrays.nodes, 0
    for k in range(n):
        space.held_from[k] = m
        job = arrays.jobs[space.order[k]]
        for row in range(job.place_from, job.place_to):
            i = state.place[row].node
            if i < 0:
                break
            cpus = state.place[row].cpus
            space.held[m].node = i
            space.held[m].cores = held_cores(job, nodes[i], cpus)
            space.held[m].memory_mb = held_memory_mb(job, nodes[i], cpus)
            m += 1
    space.held_from[n] = m


@borrowing
def _may_preempt(arrays, e):  # type: ignore[no-untyped-def]
    """Whether any job at all could be preempted by the entry's job."""
    preempts = arrays.tuning[0].preempt
    if preempts == 1:
        mine = arrays.partitions[arrays.entries[e].partition].tier
        for p in range(len(arrays.partitions)):
            if arrays.partitions[p].tier < mine and arrays.partitions[p].preempt_mode > 0:
                return True
        return False
    return preempts == 2


@borrowing
def will_run(arrays, state, space, e, now_s, now_only):  # type: ignore[no-untyped-def]
    """When and where the entry's job could start on `space.allowed`: (nodes in the workspace, time).

    Running jobs are taken to end at their limits. They are removed in groups that end close together, and each
    group spans twice the time of the one before.
    """
    j = arrays.entries[e].job
    loaded = arrays.partitions[arrays.entries[e].partition].least_loaded
    count = select_nodes(arrays, j, state.free, space.allowed, state.work, loaded)
    if count > 0:
        return count, now_s
    preempts = _may_preempt(arrays, e)
    if now_only and not preempts:
        return 0, now_s
    copy_free(state.free, state.future)
    n = state.counts[ACTIVE]
    if preempts:
        for k in range(n):
            mode = preemption_of(arrays, state, e, space.order[k])
            if mode > 0:
                sign = 2 if mode == SUSPEND else 1
                change_resources(arrays, state.future, space.order[k], state.place, sign)
        count = select_nodes(arrays, j, state.future, space.allowed, state.work, loaded)
        if count > 0 or now_only:
            return count, now_s
    window_s, k = 30.0, 0
    future, gres, allowed = state.future.nodes, state.future.gres, space.allowed
    while k < n:
        first_s, last_s, removed = -1.0, -1.0, 0
        while k < n and removed <= 200:
            other = space.order[k]
            ends_s = state.live[other].limit_end_s
            if first_s >= 0.0 and ends_s > first_s + window_s:
                break
            k += 1
            if preempts and preemption_of(arrays, state, e, other) > 0:
                continue
            touches = False
            for m in range(space.held_from[k - 1], space.held_from[k]):
                touches |= allowed[space.held[m].node] == 1
            if touches:
                for m in range(space.held_from[k - 1], space.held_from[k]):
                    i = space.held[m].node
                    future[i].cores += space.held[m].cores
                    future[i].memory_mb += space.held[m].memory_mb
                    future[i].jobs -= 1
                    future[i].unshared -= not arrays.jobs[other].forced
                    for g in range(gres.shape[1]):
                        gres[i, g] += arrays.job_gres[other, g]
                last_s = ends_s
                if first_s < 0.0:
                    first_s = ends_s
                removed += 1
        if removed == 0:
            break
        linear_s = arrays.tuning[0].bf_window_linear
        window_s = window_s + linear_s if linear_s > 0 else 2 * window_s
        count = select_nodes(arrays, j, state.future, space.allowed, state.work, loaded)
        if count > 0:
            return count, max(last_s, now_s + 1.0)
    return 0, now_s


@borrowing
def _pack(flags, bits):  # type: ignore[no-untyped-def]
    """Flags of nodes as a set of bits."""
    for w in range(len(bits)):
        word = np.int64(0)
        for i in range(w * WORD_BITS, min((w + 1) * WORD_BITS, len(flags))):
            word |= np.int64(flags[i]) << (i - w * WORD_BITS)
        bits[w] = word


@borrowing
def _overlaps(space, start_s, end_s):  # type: ignore[no-untyped-def]
    """Whether some picked node has a plan in this time."""
    k = 0
    while True:
        if space.end_s[k] > start_s and space.begin_s[k] < end_s:
            for w in range(len(space.picked_bits)):
                if space.picked_bits[w] & ~space.avail[k, w]:
                    return True
        k = space.next[k]
        if k == 0:
            return False


@borrowing
def _split(space, k, at_s):  # type: ignore[no-untyped-def]
    """Cut stretch k in two at a moment; returns the later part."""
    new = space.stretches[0]
    space.stretches[0] += 1
    space.begin_s[new], space.end_s[new] = at_s, space.end_s[k]
    space.end_s[k] = at_s
    for w in range(space.avail.shape[1]):
        space.avail[new, w] = space.avail[k, w]
    space.next[new] = space.next[k]
    space.next[k] = new
    return new


@borrowing
def plan_nodes(space, start_s, end_s):  # type: ignore[no-untyped-def]
    """Take the picked nodes out of the map from one moment to another."""
    k = 0
    while space.end_s[k] <= start_s:
        k = space.next[k]
        if k == 0:
            return
    if space.begin_s[k] < start_s:
        k = _split(space, k, start_s)
    while True:
        if space.end_s[k] > end_s:
            _split(space, k, end_s)
        for w in range(len(space.picked_bits)):
            space.avail[k, w] &= ~space.picked_bits[w]
        if space.end_s[k] >= end_s:
            return
        k = space.next[k]
        if k == 0:
            return


@borrowing
def _restrict(space, start_s, end_s):  # type: ignore[no-untyped-def]
    """Drop allowed nodes that are planned in this time; returns when the map first gains nodes after the start."""
    later_s, k = 0.0, 0
    allowed, asked = space.allowed_bits, space.picked_bits
    _pack(space.allowed, allowed)
    for w in range(len(allowed)):
        asked[w] = allowed[w]
    while True:
        if space.end_s[k] > start_s and space.next[k] and later_s == 0.0:
            following = space.next[k]
            for w in range(len(allowed)):
                if asked[w] & space.avail[following, w] & ~(allowed[w] & space.avail[k, w]):
                    later_s = space.end_s[k]
                    break
        if space.end_s[k] > start_s:
            if space.begin_s[k] > end_s:
                following = space.next[k]
                if later_s == 0.0 and following and space.next[following]:
                    later_s = space.end_s[following]
                break
            for w in range(len(allowed)):
                allowed[w] &= space.avail[k, w]
        k = space.next[k]
        if k == 0:
            break
    for i in range(len(space.allowed)):
        space.allowed[i] = (allowed[i // WORD_BITS] >> (i % WORD_BITS)) & 1
    return later_s


@borrowing
def _after_reservation(arrays, start_s):  # type: ignore[no-untyped-def]
    """The first end of an advance reservation after a moment; 0 if there is none."""
    best = 0.0
    for r in range(len(arrays.reservation_s)):
        end_s = arrays.reservation_s[r, 1]
        if end_s > start_s and (best == 0.0 or end_s < best):
            best = end_s
    return best


@borrowing
def _test_job(arrays, state, space, e, now_s, now_only):  # type: ignore[no-untyped-def]
    """Start the entry's job or plan its nodes: 1 started, 2 planned, 0 neither."""
    jobs, tuning, j = arrays.jobs, arrays.tuning[0], arrays.entries[e].job
    limit_s, resolution = jobs[j].limit_s, tuning.bf_resolution
    window_end = now_s + tuning.bf_window
    # What did not fit for an entry of the same kind does not fit now: the map only loses nodes within a cycle.
    kind = arrays.entries[e].kind
    later_s = max(space.kind_s[kind], now_s)
    for _ in range(MOST_TRIES):
        start_s = later_s
        own = jobs[j].reservation
        if own >= 0:
            start_s = max(start_s, arrays.reservation_s[own, 0])
            if start_s >= arrays.reservation_s[own, 1]:
                return 0
        if start_s > window_end:
            return 0
        end_s = max(start_s, now_s) + limit_s
        mask = arrays.entries[e].mask
        for i in range(len(space.allowed)):
            space.allowed[i] = arrays.masks[mask, i]
        reserved = reserved_for_others(arrays, j, start_s, end_s, space.allowed)
        later_s = _restrict(space, start_s, end_s)
        if reserved:
            freed_s = _after_reservation(arrays, start_s)
            if 0.0 < freed_s < window_end and (later_s == 0.0 or freed_s + 1 < later_s):
                later_s = freed_s + 1
        count, when_s, there = 0, now_s, 0
        for i in range(len(space.allowed)):
            there += space.allowed[i]
        if there >= jobs[j].nodes_min:
            state.counts[TESTS] += 1
            count, when_s = will_run(arrays, state, space, e, now_s, now_only)
        if count == 0:
            if later_s > 0.0 and not now_only:
                continue
            return 0
        when_s = max(when_s, start_s)
        if when_s <= now_s:
            if try_start(arrays, state, e, now_s, space.allowed) == STARTED:
                return 1
            when_s = now_s + 1.0
            later_s = 0.0
        if now_only:
            return 0
        if later_s > 0.0 and when_s > later_s:
            continue
        if when_s > window_end:
            return 0
        for w in range(len(space.picked_bits)):
            space.picked_bits[w] = 0
        for k in range(count):
            node = state.work.room[k].node
            space.picked_bits[node // WORD_BITS] |= np.int64(1) << (node % WORD_BITS)
        from_s = np.floor(when_s / resolution) * resolution
        until_s = np.floor((when_s + limit_s) / resolution) * resolution
        if _overlaps(space, from_s, until_s):
            later_s = when_s + resolution if start_s == when_s else when_s
            continue
        plan_nodes(space, from_s, until_s)
        space.kind_s[kind] = start_s
        return 2
    return 0


@borrowing
def backfill_cycle(arrays, state, space, now_s):  # type: ignore[no-untyped-def]
    """Test the queue in its order, within the limits of SchedulerParameters."""
    tuning, entries, jobs = arrays.tuning[0], arrays.entries, arrays.jobs
    state.counts[CYCLES] += 1
    resolution = tuning.bf_resolution
    space.stretches[0] = 1
    space.begin_s[0] = np.floor(now_s / resolution) * resolution
    space.end_s[0] = np.floor((now_s + tuning.bf_window) / resolution) * resolution
    space.next[0] = 0
    for i in range(len(arrays.nodes)):
        space.allowed[i] = arrays.nodes[i].up
    _pack(space.allowed, space.avail[0])
    space.by_user[:] = 0
    space.by_partition[:] = 0
    space.kind_s[:] = 0.0
    _sort_running(arrays, state, space)
    tested, started = 0, 0
    array, array_partition, array_plans, array_rejected = -1, -1, 0, False
    for q in range(state.counts[QUEUED]):
        e = state.queue[q]
        j, p = entries[e].job, entries[e].partition
        if state.live[j].status != PENDING or state.live[j].begin_s > now_s or not arrays.partitions[p].schedules:
            continue
        if 0 < tuning.bf_max_job_user <= space.by_user[jobs[j].user]:
            continue
        if jobs[j].link_from < jobs[j].link_to and not satisfied(arrays, state, j):
            continue
        if entries[e].limit_from < entries[e].limit_to and not within_limits(arrays, state, e):
            continue
        if jobs[j].array > 0:
            if jobs[j].array == array and p == array_partition:
                if array_rejected or array_plans >= tuning.bf_max_job_array_resv:
                    continue
            else:
                array, array_partition, array_plans, array_rejected = jobs[j].array, p, 0, False
        space.by_user[jobs[j].user] += 1
        if tuning.bf_max_job_part > 0:
            if space.by_partition[p] >= tuning.bf_max_job_part:
                continue
            space.by_partition[p] += 1
        if tested >= tuning.bf_max_job_test or space.stretches[0] >= tuning.bf_node_space_size:
            break
        tested += 1
        ask_for(arrays, e)
        now_only = state.priority[e] < tuning.bf_min_prio_reserve
        waited_s = now_s - max(jobs[j].submit_s, state.live[j].begin_s)
        now_only |= waited_s < tuning.bf_min_age_reserve
        result = _test_job(arrays, state, space, e, now_s, now_only)
        if result == 1:
            state.live[j].by_backfill = 1
            state.counts[BACKFILLED] += 1
            started += 1
            _sort_running(arrays, state, space)
            if 0 < tuning.bf_max_job_start <= started:
                break
        elif result == 2:
            array_plans += 1
        else:
            array_rejected = True
            if not now_only:
                space.kind_s[entries[e].kind] = np.inf
