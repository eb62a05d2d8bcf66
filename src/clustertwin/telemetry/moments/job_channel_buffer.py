"""The last minutes of the channels of jobs: traces as they arrive -> (row, second, channel) up to any second.

A row is a job on a node. It is kept until the job was not heard of for the length of the buffer.
"""

from __future__ import annotations

import numpy as np

from clustertwin.core.traces import Trace
from clustertwin.telemetry.moments.channel_rings import ChannelRings
from clustertwin.telemetry.moments.moment import JobMoment

#: Rows of one node. An exporter sends the counters of at most 500 jobs.
MOST_JOBS = 1024


class _NodeRows:
    """The rows of one node's jobs."""

    def __init__(self) -> None:
        self.row: dict[str, int] = {}
        self.jobs: tuple[str, ...] = ()  # of the last trace, and their rows
        self.rows = np.zeros(0, np.intp)


class JobChannelBuffer:
    """A ring of `length_s` seconds for each row. The channels are those of the first trace that has any."""

    def __init__(self, length_s: int) -> None:
        self.length_s = length_s
        self._rings = ChannelRings(length_s)
        self._nodes: dict[str, _NodeRows] = {}
        self._heard_s = np.empty(0, np.int64)  # (row,) the end of the last second heard of

    def push(self, trace: Trace) -> None:
        """Keep the seconds of one node's jobs at 1 Hz; a second that comes again is overwritten."""
        channels = trace.job_channels
        if channels is None or not channels.jobs:
            return
        values = self._rings.in_order(channels.schema, channels.values)  # (job, second, channel)
        node = self._nodes.setdefault(trace.node, _NodeRows())
        if node.jobs is not channels.jobs and node.jobs != channels.jobs:
            self._forget(node, trace.end_s)
            node.rows = np.array([self._row(node, job) for job in channels.jobs[:MOST_JOBS]], np.intp)
        node.jobs = channels.jobs
        rows = node.rows
        known = self._rings.write(rows, values[: len(rows)], trace.end_s)  # a recording holds jobs that do not run yet
        self._heard_s[rows[known]] = trace.end_s

    def window(self, nodes: tuple[str, ...], end_s: int) -> JobMoment | None:
        """The seconds [end_s - length_s, end_s) of the jobs of these nodes; the jobs of other nodes are forgotten."""
        if self._rings.schema is None:
            return None
        for name in self._nodes.keys() - set(nodes):
            for row in self._nodes.pop(name).row.values():
                self._rings.free_row(row)
        jobs: list[str] = []
        rows: list[int] = []
        node_of_row: list[int] = []
        for number, name in enumerate(nodes):
            node = self._nodes.get(name)
            for job, row in node.row.items() if node is not None else ():
                if end_s - self.length_s < self._heard_s[row]:
                    jobs.append(job)
                    rows.append(row)
                    node_of_row.append(number)
        values = self._rings.read(np.array(rows, np.intp), end_s)
        return JobMoment(self._rings.schema, tuple(jobs), np.array(node_of_row, np.int32), values)

    def _forget(self, node: _NodeRows, end_s: int) -> None:
        """Free the rows of jobs that were not heard of for the whole length, or that a clock set back left behind."""
        for job, row in list(node.row.items()):
            if not end_s - self.length_s < self._heard_s[row] <= end_s + self.length_s:
                self._rings.free_row(node.row.pop(job))
        surplus = len(node.row) - MOST_JOBS
        if surplus > 0:  # those that ended first; sorted once, because a node can send a thousand new jobs a second
            for job in sorted(node.row, key=lambda job: self._heard_s[node.row[job]])[:surplus]:
                self._rings.free_row(node.row.pop(job))

    def _row(self, node: _NodeRows, job: str) -> int:
        row = node.row.get(job)
        if row is None:
            row = node.row[job] = self._rings.take_row()
            more = len(self._rings) - len(self._heard_s)
            self._heard_s = np.append(self._heard_s, np.zeros(more, np.int64)) if more else self._heard_s
            self._heard_s[row] = 0
        return row
