"""select/cons_tres: a job and the free resources of nodes -> the nodes it gets and the CPUs on each.

Nodes of low weight come first. With a tree topology the job takes as few leaf switches as it can; without one it takes
the tightest run of neighbouring nodes. CPUs fill the nodes in order, each later node keeping at least one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustertwin.core.compiled import borrowing
from clustertwin.workload.slurm.controller.site_arrays import Ints, Rows, SiteArrays

#: What is free on a node, how many jobs run there, and how many of these are of partitions that force no sharing.
FREE = np.dtype([("cores", np.int64), ("memory_mb", np.float64), ("jobs", np.int64), ("unshared", np.int64)])
#: Room for a result, one row per node: chosen nodes with their CPUs, and what the loops need on the way.
ROOM_FIELDS = ("node", "cpus", "avail", "free", "chosen", "set_start", "set_end", "set_cpus", "set_nodes")
ROOM = np.dtype([(name, np.int64) for name in ROOM_FIELDS])
LEAVES = np.dtype([("nodes", np.int64), ("distance", np.int64)])


class Free(NamedTuple):
    """What is free."""

    nodes: Rows
    gres: Ints  # (node, gres)


class Workspace(NamedTuple):
    room: Rows
    leaves: Rows


def new_workspace(arrays: SiteArrays) -> Workspace:
    return Workspace(np.zeros(len(arrays.nodes) + 1, ROOM), np.zeros(len(arrays.leaf_distance), LEAVES))


def all_free(arrays: SiteArrays) -> Free:
    """The empty machine."""
    rows = np.zeros(len(arrays.nodes), FREE)
    rows["cores"] = arrays.nodes["cores"] * arrays.nodes["up"]
    rows["memory_mb"] = arrays.nodes["memory_mb"]
    rows["jobs"] = 1 - arrays.nodes["up"]  # no whole-node job starts on a node that is down
    return Free(rows, arrays.node_gres.copy())


@borrowing
def _usable(arrays, j, free, allowed, room):  # type: ignore[no-untyped-def]
    """Fill `room.avail` with the CPUs of each node that job j could use; returns (nodes, CPUs, most on a node)."""
    job, nodes, gres = arrays.jobs[j], arrays.nodes, free.gres
    exclusive, memory, per_cpu = job.exclusive, job.memory_node_mb, job.memory_cpu_mb
    per_task, most_here, least_here = job.cpus_per_task, job.cpus_on_node, job.tasks_on_node * job.cpus_per_task
    count, total, most = 0, 0, 0
    for i in range(len(allowed)):
        room[i].avail = 0
        if not allowed[i]:
            continue
        there = free.nodes[i]
        if job.forced and there.unshared > 0:  # jobs of a partition with FORCE stay apart from others
            continue
        if exclusive:
            if there.jobs > 0:
                continue
            cpus = nodes[i].cores * nodes[i].threads
        else:
            cpus = there.cores * nodes[i].threads
        room[i].free = cpus
        if cpus < least_here:
            continue
        if memory > 0.0:
            if there.memory_mb < memory:
                continue
        elif memory == 0.0 and there.memory_mb < nodes[i].memory_mb:
            continue
        lacks = False
        for g in range(gres.shape[1]):
            if arrays.job_gres[j, g] > gres[i, g]:
                lacks = True
        if lacks:
            continue
        if per_cpu > 0.0:
            if exclusive and per_cpu * cpus > there.memory_mb:  # all CPUs of the node are the job's
                continue
            cpus = min(cpus, int(there.memory_mb / per_cpu))
        cpus = min(cpus, most_here)
        if per_task > 1:
            cpus -= cpus % per_task
        if cpus < least_here or cpus <= 0:
            continue
        room[i].avail = cpus
        count += 1
        total += cpus
        most = max(most, cpus)
    return count, total, most


@borrowing
def _take(nodes, room, job, i, left):  # type: ignore[no-untyped-def]
    """Take node i: `left` is (nodes, CPUs, chosen so far); the new values are returned."""
    nodes_left, cpus_left, count = left
    cpus = room[i].avail
    if not job.exclusive:
        most = cpus_left - max(job.nodes_min - count - 1, 0) * nodes[i].threads
        if cpus > most:
            cpus = min(max(most, job.cpus_per_task * job.tasks_on_node), cpus)
    room[count].node = i
    room[count].cpus = cpus
    room[i].chosen = 1
    return nodes_left - 1, cpus_left - cpus, count + 1


@borrowing
def _next_weight(nodes, room, above):  # type: ignore[no-untyped-def]
    """The lowest weight above one, among nodes that the job could use; -1 if there is none."""
    best = -1
    for i in range(len(nodes)):
        if room[i].avail > 0 and nodes[i].weight > above and (best < 0 or nodes[i].weight < best):
            best = nodes[i].weight
    return best


@borrowing
def _enough(job, left):  # type: ignore[no-untyped-def]
    """The number of nodes taken, or 0 if they do not suffice. A range of nodes may stay below its upper end."""
    return left[2] if left[1] <= 0 and left[2] >= job.nodes_min else 0


@borrowing
def _take_required(arrays, job, room):  # type: ignore[no-untyped-def]
    """Begin with the nodes that the job names; a negative count if one of them has no room."""
    left = (job.nodes_wanted, job.cpus, 0)
    if job.required < 0:
        return left
    required = arrays.masks[job.required]
    for i in range(len(required)):
        if not required[i]:
            continue
        if room[i].avail <= 0 or left[2] >= job.nodes_max:
            return left[0], left[1], -1
        left = _take(arrays.nodes, room, job, i, left)
    return left


@borrowing
def _by_topology(job, nodes, work, leaf_distance, left):  # type: ignore[no-untyped-def]
    """Nodes of the lowest weights that suffice, gathered leaf switch by leaf switch."""
    room, leaves_of = work.room, work.leaves
    n = len(nodes)
    weight, below, count, cpus = -1, -1, 0, 0
    while count < job.nodes_wanted or cpus < job.cpus:
        following = _next_weight(nodes, room, weight)
        if following < 0:
            if count < job.nodes_min or cpus < job.cpus:
                return 0
            break
        below, weight = weight, following
        for i in range(n):
            if room[i].avail > 0 and nodes[i].weight == weight:
                count += 1
                cpus += room[i].avail
    for i in range(n):  # all nodes of the lower weights belong to the job
        if room[i].avail > 0 and not room[i].chosen and nodes[i].weight <= below:
            if left[2] >= job.nodes_max:
                return 0
            left = _take(nodes, room, job, i, left)
    leaves = len(leaves_of)
    for leaf in range(leaves):
        leaves_of[leaf].distance = 0
    used = False
    for leaf in range(leaves):
        for k in range(left[2]):
            if nodes[room[k].node].leaf == leaf:
                used = True
                for other in range(leaves):
                    leaves_of[other].distance += leaf_distance[leaf, other]
                break
    if used:  # first the switches that already hold a part of the job
        for i in range(n):
            if (left[0] <= 0 and left[1] <= 0) or left[2] >= job.nodes_max:
                break
            if room[i].avail > 0 and not room[i].chosen and nodes[i].weight <= weight:
                for k in range(left[2]):
                    if nodes[room[k].node].leaf == nodes[i].leaf:
                        left = _take(nodes, room, job, i, left)
                        break
    while (left[0] > 0 or left[1] > 0) and left[2] < job.nodes_max:
        best = _best_leaf(nodes, work, weight, left[0])
        if best < 0:
            break
        for other in range(leaves):
            leaves_of[other].distance += leaf_distance[best, other]
        for i in range(n):
            if room[i].avail > 0 and not room[i].chosen and nodes[i].weight <= weight and nodes[i].leaf == best:
                left = _take(nodes, room, job, i, left)
                if (left[0] <= 0 and left[1] <= 0) or left[2] >= job.nodes_max:
                    break
    return _enough(job, left)


@borrowing
def _best_leaf(nodes, work, weight, wanted):  # type: ignore[no-untyped-def]
    """The nearest leaf switch; of equally near ones the tightest that suffices, else the largest."""
    room, leaves = work.room, work.leaves
    for leaf in range(len(leaves)):
        leaves[leaf].nodes = 0
    for i in range(len(nodes)):
        if room[i].avail > 0 and not room[i].chosen and nodes[i].weight <= weight and nodes[i].leaf >= 0:
            leaves[nodes[i].leaf].nodes += 1
    best = -1
    for leaf in range(len(leaves)):
        count = leaves[leaf].nodes
        if count == 0:
            continue
        if best < 0 or leaves[leaf].distance < leaves[best].distance:
            best = leaf
        elif leaves[leaf].distance == leaves[best].distance:
            other = leaves[best].nodes
            if (count >= wanted and (other < wanted or count < other)) or (count < wanted and count > other):
                best = leaf
    return best


@borrowing
def _by_neighbours(job, nodes, room, left):  # type: ignore[no-untyped-def]
    """Runs of neighbouring nodes of one weight: the lightest first, then the tightest that suffices."""
    n = len(nodes)
    spare = job.nodes_wanted - job.nodes_min
    sets, open_set = 0, False
    for i in range(n):
        if room[i].avail <= 0:
            open_set = False
            continue
        if room[i].chosen:
            continue
        if not open_set or nodes[i].weight != nodes[room[sets - 1].set_start].weight:
            room[sets].set_start = i
            room[sets].set_cpus = 0
            room[sets].set_nodes = 0
            sets += 1
            open_set = True
        room[sets - 1].set_end = i
        room[sets - 1].set_cpus += room[i].avail
        room[sets - 1].set_nodes += 1
    while left[2] < job.nodes_max:
        best, best_enough = -1, False
        for s in range(sets):
            if room[s].set_nodes == 0:
                continue
            enough = room[s].set_cpus >= left[1] and room[s].set_nodes >= left[0] - spare
            if best < 0:
                better = True
            else:
                weight, other = nodes[room[s].set_start].weight, nodes[room[best].set_start].weight
                better = weight < other or (weight == other and (
                    (enough and (not best_enough or room[s].set_cpus < room[best].set_cpus))
                    or (not enough and room[s].set_cpus > room[best].set_cpus)
                ))  # fmt: skip
            if better:
                best, best_enough = s, enough
        if best < 0:
            break
        first, last = room[best].set_start, room[best].set_end
        single = -1
        if left[0] <= 1:
            for i in range(first, last + 1):
                if room[i].chosen or room[i].avail < left[1]:
                    continue
                if single < 0 or room[i].avail < room[single].avail:
                    single = i
        for i in range(first, last + 1):
            if left[2] >= job.nodes_max or (left[0] <= 0 and left[1] <= 0):
                break
            if room[i].chosen or (single >= 0 and i != single):
                continue
            if job.nodes_max - left[2] == 1 and room[i].avail < left[1]:
                continue
            left = _take(nodes, room, job, i, left)
        if left[0] <= 0 and left[1] <= 0:
            return left[2]
        room[best].set_nodes = 0
        room[best].set_cpus = 0
    return _enough(job, left)


@borrowing
def _least_loaded(job, nodes, room, left):  # type: ignore[no-untyped-def]
    """Of the nodes of the lowest weight, those with the largest part of their CPUs free first."""
    while (left[0] > 0 or left[1] > 0) and left[2] < job.nodes_max:
        best = -1
        for i in range(len(nodes)):
            if room[i].avail <= 0 or room[i].chosen:
                continue
            if best < 0 or nodes[i].weight < nodes[best].weight:
                best = i
            elif nodes[i].weight == nodes[best].weight:
                idle, most = room[i].free * nodes[best].cores, room[best].free * nodes[i].cores
                if idle * nodes[best].threads > most * nodes[i].threads:
                    best = i
        if best < 0:
            break
        left = _take(nodes, room, job, best, left)
    return _enough(job, left)


@borrowing
def _deal_tasks(job, room, count):  # type: ignore[no-untyped-def]
    """Give back CPUs beyond the request: each node has its tasks, the others are dealt to the nodes in turn."""
    total, per_task = 0, job.cpus_per_task
    least = max(job.cpus, count * job.tasks_on_node * per_task)
    for k in range(count):
        total += room[k].cpus
    if job.exclusive or total <= least:
        return
    tasks = least // per_task
    for k in range(count):
        room[k].set_cpus = 0
    dealt = True
    while tasks > 0 and dealt:
        dealt = False
        for k in range(count):
            if tasks > 0 and room[k].set_cpus + per_task <= room[k].cpus:
                room[k].set_cpus += per_task
                tasks -= 1
                dealt = True
    for k in range(count):
        room[k].cpus = room[k].set_cpus


@borrowing
def _evaluate(arrays, job, work, least_loaded):  # type: ignore[no-untyped-def]
    nodes, room = arrays.nodes, work.room
    for i in range(len(nodes)):
        room[i].chosen = 0
    left = _take_required(arrays, job, room)
    if left[2] < 0:
        return 0
    if left[0] <= 0 and left[1] <= 0:
        return left[2]
    if least_loaded:
        return _least_loaded(job, nodes, room, left)
    if nodes[0].leaf >= 0:
        return _by_topology(job, nodes, work, arrays.leaf_distance, left)
    return _by_neighbours(job, nodes, room, left)


@borrowing
def select_nodes(arrays, j, free, allowed, work, least_loaded):  # type: ignore[no-untyped-def]
    """The number of nodes chosen, listed in `room.node` with CPUs in `room.cpus`; 0 if the job does not fit."""
    job, room = arrays.jobs[j], work.room
    count, total, most = _usable(arrays, j, free, allowed, room)
    if count < job.nodes_min or total < job.cpus:
        return 0
    chosen = _evaluate(arrays, job, work, least_loaded)
    if chosen > 0 or job.nodes_max == 1:
        _deal_tasks(job, room, chosen)
        return chosen
    # Nodes with few CPUs may stand in the way of a job that spans several: leave them out step by step.
    for few in range(1, most):
        removed = False
        for i in range(len(allowed)):
            if 0 < room[i].avail <= few and (job.required < 0 or not arrays.masks[job.required, i]):
                room[i].avail = 0
                removed = True
                count -= 1
        if count < job.nodes_min:
            return 0
        if removed:
            chosen = _evaluate(arrays, job, work, least_loaded)
            if chosen > 0:
                _deal_tasks(job, room, chosen)
                return chosen
    return 0


@borrowing
def held_cores(job, node, cpus):  # type: ignore[no-untyped-def]
    """Cores that a job with these CPUs holds on a node."""
    return node.cores if job.exclusive else (cpus + node.threads - 1) // node.threads


@borrowing
def held_memory_mb(job, node, cpus):  # type: ignore[no-untyped-def]
    """Memory that a job with these CPUs holds on a node. 0 asks for the whole node; below 0, CPUs have memory."""
    if job.memory_node_mb == 0.0:
        return node.memory_mb
    if job.memory_node_mb < 0.0:
        return job.memory_cpu_mb * cpus
    return job.memory_node_mb


@borrowing
def change_resources(arrays, free, j, place, sign):  # type: ignore[no-untyped-def]
    """Take (sign -1) or give back (+1) what job j holds on its nodes, its rows of `place`; node -1 ends them.

    Sign 2 gives back cores only and -2 takes them again, for a suspended job.
    """
    job, nodes = arrays.jobs[j], arrays.nodes
    step = 1 if sign > 0 else -1
    whole = sign == 1 or sign == -1
    for k in range(job.place_from, job.place_to):
        i = place[k].node
        if i < 0:
            break
        free.nodes[i].cores += step * held_cores(job, nodes[i], place[k].cpus)
        if whole:
            free.nodes[i].memory_mb += step * held_memory_mb(job, nodes[i], place[k].cpus)
            for g in range(free.gres.shape[1]):
                free.gres[i, g] += step * arrays.job_gres[j, g]
            free.nodes[i].jobs -= step
            free.nodes[i].unshared -= step * (not job.forced)
