"""The last minutes of every node's own channels: traces as they arrive -> (node, second, channel) up to any second."""

from __future__ import annotations

import numpy as np

from clustertwin.core.traces import NodeChannels, Trace
from clustertwin.telemetry.moments.channel_rings import ChannelRings


class NodeChannelBuffer:
    """A ring of `length_s` seconds for each node. The channels are those of the first trace that has any."""

    def __init__(self, length_s: int) -> None:
        self._rings = ChannelRings(length_s)
        self._row: dict[str, int] = {}

    def push(self, trace: Trace) -> None:
        """Keep the seconds of one node at 1 Hz; a second that comes again is overwritten."""
        channels = trace.node_channels
        if channels is None:
            return
        values = self._rings.in_order(channels.schema, channels.values)
        self._rings.write(np.array([self._row_of(trace.node)], np.intp), values[None], trace.end_s)

    def window(self, nodes: tuple[str, ...], end_s: int) -> NodeChannels | None:
        """The seconds [end_s - length_s, end_s) of these nodes, NaN where unknown; other nodes are forgotten."""
        if self._rings.schema is None:
            return None
        for name in self._row.keys() - set(nodes):
            self._rings.free_row(self._row.pop(name))
        rows = np.array([self._row_of(name) for name in nodes], np.intp)
        return NodeChannels(self._rings.schema, self._rings.read(rows, end_s))

    def _row_of(self, node: str) -> int:
        row = self._row.get(node)
        if row is None:
            row = self._row[node] = self._rings.take_row()
        return row
