"""A moment in parts: which threads must be seen together -> smaller moments, and their scores put together again.

A thread is compared with the other threads of its job, so a job's nodes must be scored together. Nodes that a job joins
form a cluster of nodes; parts are made of whole clusters, the largest first. One job over all nodes therefore makes
one part: the scores stay exact, and the parts are as even as the jobs allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.events.tracker import Event
from clustertwin.telemetry.detection.scores import COLUMNS, Scores
from clustertwin.telemetry.moments.moment import Moment

Rows = NDArray[np.intp]


def deal(moment: Moment, parts: int) -> list[Rows]:
    """The rows of each part; no job and no node is in two. Parts that would be empty are left out."""
    cluster = np.arange(len(moment.nodes))
    for node, job in _pairs(moment):
        # Every node of a job takes the name of its first.
        first, mine = cluster[job], cluster[node]
        cluster[cluster == max(first, mine)] = min(first, mine)
    names, sizes = np.unique(cluster[moment.node], return_counts=True)
    load = np.zeros(parts, np.int64)
    part_of: dict[int, int] = {}
    for i in np.argsort(-sizes, kind="stable"):
        lightest = int(load.argmin())
        part_of[int(names[i])] = lightest
        load[lightest] += sizes[i]
    part = np.array([part_of.get(int(name), 0) for name in cluster])[moment.node]  # (thread,)
    return [rows for number in range(parts) if len(rows := np.flatnonzero(part == number))]


def _pairs(moment: Moment) -> list[tuple[int, int]]:
    """(node, the first node of a job it has threads of), for jobs on more than one node."""
    held = moment.job >= 0
    pairs = np.unique(np.stack([moment.job[held], moment.node[held]], 1), axis=0)  # ordered by job, then node
    first: dict[int, int] = {}
    found = []
    for job, node in pairs.tolist():
        if job in first:
            found.append((node, first[job]))
        first.setdefault(job, node)
    return found


def runs(moment: Moment, parts: int) -> list[slice]:
    """Rows that lie side by side, as even as nodes and jobs allow: a part that is a view, and costs nothing to take."""
    nodes, jobs, held = len(moment.nodes), len(moment.jobs), moment.job >= 0
    first, last = np.full(jobs, nodes), np.full(jobs, -1)
    np.minimum.at(first, moment.job[held], moment.node[held])
    np.maximum.at(last, moment.job[held], moment.node[held])
    torn = np.zeros(nodes + 1, np.int64)  # a cut before node i would part so many jobs, summed up to i
    np.add.at(torn, first[last >= 0] + 1, 1)
    np.add.at(torn, last[last >= 0] + 1, -1)
    whole = np.flatnonzero(np.cumsum(torn)[:nodes] == 0)
    begins = np.unique(np.searchsorted(moment.node, whole))
    begins = begins[begins < len(moment)]
    wanted = np.linspace(0, len(moment), parts, endpoint=False)
    chosen = np.unique([begins[np.argmin(np.abs(begins - row))] for row in wanted]).tolist()
    return [slice(start, end) for start, end in pairwise([*chosen, len(moment)])]


def around(moment: Moment, event: Event) -> Rows:
    """All that a reason for an event looks at: the threads of its nodes, and those of the jobs on its threads."""
    numbers = [i for i, node in enumerate(moment.nodes) if node in set(event.nodes)]
    here = np.flatnonzero(np.isin(moment.node, numbers))
    cpus = dict(event.places)
    mine = [row for row in here.tolist() if moment.cpu[row] in cpus[moment.nodes[moment.node[row]]]]
    jobs = np.unique(moment.job[mine])
    return np.union1d(here, np.flatnonzero(np.isin(moment.job, jobs[jobs >= 0])))


def unknown_scores(like: Scores, threads: int) -> Scores:
    """Scores of so many threads of which nothing is known, as the same detector would give them."""
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        columns[name] = np.full((threads, *getattr(like, name).shape[1:]), np.nan, np.float32)
    return replace(like, **columns)


def put(scores: Scores, rows: Rows | slice, part: Scores) -> None:
    """Enter the scores of these rows."""
    for name in COLUMNS:
        getattr(scores, name)[rows] = getattr(part, name)


def gather(moment: Moment, parts: Sequence[tuple[Rows, Scores]]) -> Scores:
    """The parts' scores in the moment's order; threads that are in none are unknown."""
    whole = unknown_scores(parts[0][1], len(moment))
    for rows, scores in parts:
        put(whole, rows, scores)
    return whole
