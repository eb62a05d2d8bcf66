"""The last hour of node scores: what each scoring found worst on each node -> a table of nodes by time."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from clustertwin.service.live.snapshot import History, NodeState

_Column = tuple[int, tuple[str, ...], NDArray[np.float32]]  # when, which nodes in order, their scores


class NodeScores:
    """Remembers `length_s` seconds."""

    def __init__(self, length_s: int) -> None:
        self.length_s = length_s
        self._past: deque[_Column] = deque()

    def add(self, end_s: int, nodes: tuple[NodeState, ...]) -> History:
        """The table with this scoring as its last column; its rows are the nodes of now."""
        while self._past and not end_s - self.length_s < self._past[0][0] < end_s:
            self._past.popleft()  # too old, or of a clock that was set back since
        ordered = sorted(nodes, key=lambda state: state.node)
        names = tuple(state.node for state in ordered)
        self._past.append((end_s, names, np.array([state.score for state in ordered], np.float32)))
        times_s = np.array([time_s for time_s, *_ in self._past], np.int64)
        columns = [_in_order(column, names) for column in self._past]
        return History(times_s, names, np.stack(columns, axis=1))


def _in_order(column: _Column, names: tuple[str, ...]) -> NDArray[np.float32]:
    """The scores of these nodes; NaN for those that were not there."""
    _, then, scores = column
    if then == names:
        return scores
    known = dict(zip(then, scores.tolist(), strict=True))
    return np.array([known.get(name, np.nan) for name in names], np.float32)
