"""The history of node scores: highest score and share of anomalous threads at each scoring -> nodes × time."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from clustertwin.service.live.snapshot import NodeState, ScoreHistory

_Column = tuple[int, tuple[str, ...], NDArray[np.float32]]  # when, which nodes in order, (2, node) score and share


class NodeScores:
    """Keeps the scores of the last `length_s` seconds."""

    def __init__(self, length_s: int) -> None:
        self.length_s = length_s
        self._columns: deque[_Column] = deque()

    def add(self, end_s: int, nodes: tuple[NodeState, ...]) -> ScoreHistory:
        """The table with this scoring as its last column. Its rows are the current nodes."""
        while self._columns and self._columns[0][0] <= end_s - self.length_s:
            self._columns.popleft()
        while self._columns and self._columns[-1][0] >= end_s:
            self._columns.pop()  # from before the clock was set back
        ordered = sorted(nodes, key=lambda state: state.node)
        names = tuple(state.node for state in ordered)
        values = np.array([(state.score, _share(state)) for state in ordered], np.float32).reshape(-1, 2).T
        self._columns.append((end_s, names, values))
        times_s = np.array([time_s for time_s, *_ in self._columns], np.int64)
        score, share = np.stack([_values_of(column, names) for column in self._columns], axis=2)
        return ScoreHistory(times_s, names, score, share)


def _share(state: NodeState) -> float:
    """The share of a node's scored threads that are above the threshold; NaN without a score."""
    scored = state.threads - state.unknown
    return state.alarming / scored if scored > 0 else float("nan")


def _values_of(column: _Column, names: tuple[str, ...]) -> NDArray[np.float32]:
    """(2, node) of these nodes; NaN for a node that the column does not have."""
    _, nodes, values = column
    if nodes == names:
        return values
    row = {node: i for i, node in enumerate(nodes)}
    known = np.concatenate([values, np.full((2, 1), np.nan, np.float32)], axis=1)
    return known[:, [row.get(name, len(nodes)) for name in names]]
