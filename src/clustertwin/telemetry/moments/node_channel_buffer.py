"""The last minutes of every node's own channels: traces as they arrive -> (node, second, channel) up to any second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.traces import NodeChannels, Trace


class NodeChannelBuffer:
    """A ring of `length_s` seconds for each node. The channels are those of the first trace that has any."""

    def __init__(self, length_s: int) -> None:
        self.length_s = length_s
        self._schema: Schema | None = None
        self._row: dict[str, int] = {}
        self._free: list[int] = []
        self._values = np.empty((0, length_s, 0), np.float32)  # (row, slot, channel)
        self._second = np.empty((0, length_s), np.int64)  # (row, slot) which second the slot holds

    def push(self, trace: Trace) -> None:
        """Keep the seconds of one node at 1 Hz; a second that comes again is overwritten."""
        if trace.node_channels is None:
            return
        values = self._in_order(trace.node_channels)[-self.length_s :]
        row = self._row.get(trace.node)
        if row is None:
            row = self._add(trace.node)
        if len(values) == 1:
            slot = trace.start_s % self.length_s
            self._values[row, slot], self._second[row, slot] = values[0], trace.start_s
        else:
            seconds = np.arange(trace.end_s - len(values), trace.end_s)
            self._values[row, seconds % self.length_s] = values
            self._second[row, seconds % self.length_s] = seconds

    def window(self, nodes: tuple[str, ...], end_s: int) -> NodeChannels | None:
        """The seconds [end_s - length_s, end_s) of these nodes, NaN where unknown; other nodes are forgotten."""
        if self._schema is None:
            return None
        for name in self._row.keys() - set(nodes):
            self._free.append(self._row.pop(name))
        rows = np.array([self._row[name] if name in self._row else self._add(name) for name in nodes], np.intp)
        seconds = np.arange(end_s - self.length_s, end_s)
        slots = seconds % self.length_s
        values = self._values[rows[:, None], slots]  # (node, second, channel)
        values[self._second[rows[:, None], slots] != seconds] = np.nan
        return NodeChannels(self._schema, values)

    def _in_order(self, channels: NodeChannels) -> NDArray[np.float32]:
        if self._schema is None:
            self._schema = channels.schema
            self._values = np.empty((0, self.length_s, len(channels.schema)), np.float32)
        if channels.schema == self._schema:
            return channels.values
        names = channels.schema.names
        unknown = np.full(len(channels.values), np.nan, np.float32)
        columns = [channels.values[:, names.index(name)] if name in names else unknown for name in self._schema.names]
        return np.stack(columns, axis=1)

    def _add(self, node: str) -> int:
        if not self._free:
            rows = len(self._second)
            more = max(rows, 4)
            self._values = np.concatenate([self._values, np.empty((more, *self._values.shape[1:]), np.float32)])
            self._second = np.concatenate([self._second, np.empty((more, self.length_s), np.int64)])
            self._free = list(range(rows, rows + more))
        row = self._row[node] = self._free.pop()
        self._second[row] = -1
        return row
