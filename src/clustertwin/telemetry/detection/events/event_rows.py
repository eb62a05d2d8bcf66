"""The threads of an event in a moment: event, moment -> rows."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.moments.moment import Moment


def rows_of(moment: Moment, event: Event) -> NDArray[np.intp]:
    """The rows of an event's threads in a moment; threads that are not in it are left out."""
    near = _rows_on(moment, event.nodes).tolist()  # not all threads: a page asks for a hundred events
    row = {(moment.nodes[moment.node[i]], int(moment.cpu[i])): i for i in near}
    return np.array([row[node, cpu] for node, cpus in event.places for cpu in cpus if (node, cpu) in row], np.intp)


def held_rows(moment: Moment, event: Event) -> NDArray[np.intp]:
    """The rows of those threads that the event's jobs still hold; without a job, of those that no job holds."""
    rows = rows_of(moment, event)
    own = [number for number, job in enumerate(moment.jobs) if job in event.jobs] if event.jobs else [-1]
    return rows[np.isin(moment.job[rows], own)]


def rows_to_explain(moment: Moment, event: Event) -> NDArray[np.intp]:
    """All rows that an explanation of the event depends on: its nodes, and the jobs of its threads on other nodes."""
    on_nodes = _rows_on(moment, event.nodes)
    cpus = dict(event.places)
    of_event = [row for row in on_nodes.tolist() if moment.cpu[row] in cpus[moment.nodes[moment.node[row]]]]
    jobs = np.unique(moment.job[of_event])
    return np.union1d(on_nodes, np.flatnonzero(np.isin(moment.job, jobs[jobs >= 0])))


def _rows_on(moment: Moment, nodes: Collection[str]) -> NDArray[np.intp]:
    """The rows of all threads of these nodes."""
    wanted = frozenset(nodes)
    numbers = [i for i, node in enumerate(moment.nodes) if node in wanted]
    return np.flatnonzero(np.isin(moment.node, numbers))
