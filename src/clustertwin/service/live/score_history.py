"""The history of node scores: the highest score of each node at each scoring -> a table of nodes × time."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from clustertwin.service.live.snapshot import NodeState, ScoreHistory

_Column = tuple[int, tuple[str, ...], NDArray[np.float32]]  # when, which nodes in order, their scores


class NodeScores:
    """Keeps the scores of the last `length_s` seconds."""

    def __init__(self, length_s: int) -> None:
        self.length_s = length_s
        self._columns: deque[_Column] = deque()

    def add(self, end_s: int, nodes: tuple[NodeState, ...]) -> ScoreHistory:
        """The table with this scoring as its last column. Its rows are the current nodes."""
        while self._columns and not end_s - self.length_s < self._columns[0][0] < end_s:
            self._columns.popleft()  # too old, or from before the clock was set back
        ordered = sorted(nodes, key=lambda state: state.node)
        names = tuple(state.node for state in ordered)
        self._columns.append((end_s, names, np.array([state.score for state in ordered], np.float32)))
        times_s = np.array([time_s for time_s, *_ in self._columns], np.int64)
        columns = [_scores_of(column, names) for column in self._columns]
        return ScoreHistory(times_s, names, np.stack(columns, axis=1))


def _scores_of(column: _Column, names: tuple[str, ...]) -> NDArray[np.float32]:
    """The scores of these nodes; NaN for a node that the column does not have."""
    _, nodes, scores = column
    if nodes == names:
        return scores
    known = dict(zip(nodes, scores.tolist(), strict=True))
    return np.array([known.get(name, np.nan) for name in names], np.float32)
