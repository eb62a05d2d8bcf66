"""The last minutes of the channels of jobs: traces as they arrive -> (row, second, channel) up to any second.

A row is a job on a node. It is kept until the job was not heard of for the length of the buffer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.traces import JobChannels, Trace
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
        self._schema: Schema | None = None
        self._nodes: dict[str, _NodeRows] = {}
        self._free: list[int] = []
        self._values = np.empty((0, length_s, 0), np.float32)  # (row, slot, channel)
        self._second = np.empty((0, length_s), np.int64)  # (row, slot) which second the slot holds
        self._heard_s = np.empty(0, np.int64)  # (row,) the end of the last second heard of

    def push(self, trace: Trace) -> None:
        """Keep the seconds of one node's jobs at 1 Hz; a second that comes again is overwritten."""
        channels = trace.job_channels
        if channels is None or not channels.jobs:
            return
        values = self._in_order(channels)[:, -self.length_s :]  # (job, second, channel)
        node = self._nodes.setdefault(trace.node, _NodeRows())
        if node.jobs is not channels.jobs and node.jobs != channels.jobs:
            self._forget(node, trace.end_s)
            node.rows = np.array([self._row(node, job) for job in channels.jobs[:MOST_JOBS]], np.intp)
        node.jobs = channels.jobs
        rows = node.rows
        if values.shape[1] == 1:
            self._push_second(rows, values[: len(rows), 0], trace.start_s)
            return
        seconds = np.arange(trace.end_s - values.shape[1], trace.end_s)
        slots = seconds % self.length_s
        # (job, second): a recording holds jobs that do not run yet
        known: NDArray[np.bool_] = np.logical_not(np.isnan(values[: len(rows)]).all(axis=2))
        self._values[rows[:, None], slots] = values[: len(rows)]
        self._second[rows[:, None], slots] = np.where(known, seconds, -1)
        self._heard_s[rows] = np.where(known.any(axis=1), trace.end_s, self._heard_s[rows])

    def _push_second(self, rows: NDArray[np.intp], values: NDArray[np.float32], second: int) -> None:
        """The usual case: values (job, channel) of one second, of jobs that run."""
        slot = second % self.length_s
        known = ~np.isnan(values).all(axis=1)
        self._values[rows, slot] = values
        self._second[rows, slot] = np.where(known, second, -1)
        self._heard_s[rows[known]] = second + 1

    def window(self, nodes: tuple[str, ...], end_s: int) -> JobMoment | None:
        """The seconds [end_s - length_s, end_s) of the jobs of these nodes; the jobs of other nodes are forgotten."""
        if self._schema is None:
            return None
        for name in self._nodes.keys() - set(nodes):
            self._free += self._nodes.pop(name).row.values()
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
        index = np.array(rows, np.intp)[:, None]
        seconds = np.arange(end_s - self.length_s, end_s)
        slots = seconds % self.length_s
        values = self._values[index, slots]  # (row, second, channel)
        values[self._second[index, slots] != seconds] = np.nan
        return JobMoment(self._schema, tuple(jobs), np.array(node_of_row, np.int32), values)

    def _in_order(self, channels: JobChannels) -> NDArray[np.float32]:
        if self._schema is None:
            self._schema = channels.schema
            self._values = np.empty((0, self.length_s, len(channels.schema)), np.float32)
        if channels.schema == self._schema:
            return channels.values
        names = channels.schema.names
        values = np.full((*channels.values.shape[:2], len(self._schema)), np.nan, np.float32)
        for column, name in enumerate(self._schema.names):
            if name in names:
                values[..., column] = channels.values[..., names.index(name)]
        return values

    def _forget(self, node: _NodeRows, end_s: int) -> None:
        """Free the rows of jobs that were not heard of for the whole length, or that a clock set back left behind."""
        for job, row in list(node.row.items()):
            if not end_s - self.length_s < self._heard_s[row] <= end_s + self.length_s:
                self._free.append(node.row.pop(job))
        while len(node.row) > MOST_JOBS:  # those that ended first
            job = min(node.row, key=lambda job: self._heard_s[node.row[job]])
            self._free.append(node.row.pop(job))

    def _row(self, node: _NodeRows, job: str) -> int:
        row = node.row.get(job)
        if row is not None:
            return row
        if not self._free:
            rows = len(self._second)
            more = max(rows, 4)
            self._values = np.concatenate([self._values, np.empty((more, *self._values.shape[1:]), np.float32)])
            self._second = np.concatenate([self._second, np.empty((more, self.length_s), np.int64)])
            self._heard_s = np.concatenate([self._heard_s, np.zeros(more, np.int64)])
            self._free = list(range(rows, rows + more))
        row = node.row[job] = self._free.pop()
        self._second[row], self._heard_s[row] = -1, 0
        return row
