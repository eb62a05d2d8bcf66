"""Split a moment for scoring: a moment -> parts that can be scored apart, and their scores combined again.

A thread is compared with the other threads of its job, so all nodes of a job must be in one part. Nodes that are
connected by jobs form a cluster, and a part consists of whole clusters, the largest first. One job on all nodes
therefore gives one part: the scores stay exact, and the parts are as even as the jobs allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.scores import COLUMNS, Scores
from clustertwin.telemetry.moments.moment import Moment

Rows = NDArray[np.intp]


def split_by_job(moment: Moment, parts: int) -> list[Rows]:
    """The rows of each part; no job and no node is in two parts. Empty parts are left out."""
    cluster = np.arange(len(moment.nodes))
    for node, first_node in _connections(moment):
        # Merge two clusters: the lower number becomes the number of both.
        left, right = cluster[first_node], cluster[node]
        cluster[cluster == max(left, right)] = min(left, right)
    names, sizes = np.unique(cluster[moment.node], return_counts=True)
    load = np.zeros(parts, np.int64)
    part_of: dict[int, int] = {}
    for i in np.argsort(-sizes, kind="stable"):
        lightest = int(load.argmin())
        part_of[int(names[i])] = lightest
        load[lightest] += sizes[i]
    part = np.array([part_of.get(int(name), 0) for name in cluster])[moment.node]  # (thread,)
    return [rows for number in range(parts) if len(rows := np.flatnonzero(part == number))]


def _connections(moment: Moment) -> list[tuple[int, int]]:
    """(node, first node of a job on it), for jobs on more than one node."""
    allocated = moment.job >= 0
    pairs = np.unique(np.stack([moment.job[allocated], moment.node[allocated]], 1), axis=0)  # by job, then by node
    first: dict[int, int] = {}
    connections = []
    for job, node in pairs.tolist():
        if job in first:
            connections.append((node, first[job]))
        first.setdefault(job, node)
    return connections


def contiguous_parts(moment: Moment, parts: int) -> list[slice]:
    """Contiguous rows for each part, as even as nodes and jobs allow. Taking such a part is a view, not a copy."""
    nodes, jobs, allocated = len(moment.nodes), len(moment.jobs), moment.job >= 0
    first, last = np.full(jobs, nodes), np.full(jobs, -1)
    np.minimum.at(first, moment.job[allocated], moment.node[allocated])
    np.maximum.at(last, moment.job[allocated], moment.node[allocated])
    crossing = np.zeros(nodes + 1, np.int64)  # its running sum is the number of jobs that a cut before node i divides
    np.add.at(crossing, first[last >= 0] + 1, 1)
    np.add.at(crossing, last[last >= 0] + 1, -1)
    allowed = np.flatnonzero(np.cumsum(crossing)[:nodes] == 0)
    begins = np.unique(np.searchsorted(moment.node, allowed))
    begins = begins[begins < len(moment)]
    wanted = np.linspace(0, len(moment), parts, endpoint=False)
    chosen = np.unique([begins[np.argmin(np.abs(begins - row))] for row in wanted]).tolist()
    return [slice(start, end) for start, end in pairwise([*chosen, len(moment)])]


def unknown_scores(like: Scores, threads: int) -> Scores:
    """NaN scores for this many threads, with the views and the embedding size of `like`."""
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        columns[name] = np.full((threads, *getattr(like, name).shape[1:]), np.nan, np.float32)
    return replace(like, **columns)


def write_rows(scores: Scores, rows: Rows | slice, part: Scores) -> None:
    """Overwrite these rows of `scores` with `part`."""
    for name in COLUMNS:
        getattr(scores, name)[rows] = getattr(part, name)


def combine(moment: Moment, parts: Sequence[tuple[Rows, Scores]]) -> Scores:
    """The scores of all parts in the moment's order; NaN for threads that are in no part."""
    scores = unknown_scores(parts[0][1], len(moment))
    for rows, part in parts:
        write_rows(scores, rows, part)
    return scores
