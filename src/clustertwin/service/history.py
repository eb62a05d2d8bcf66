"""The last hour of node scores: what each scoring found worst on each node -> a table of nodes by time."""

from __future__ import annotations

from collections import deque

import numpy as np

from clustertwin.service.state import History, NodeState


class NodeScores:
    """Remembers `length_s` seconds."""

    def __init__(self, length_s: int) -> None:
        self.length_s = length_s
        self._past: deque[tuple[int, dict[str, float]]] = deque()

    def add(self, end_s: int, nodes: tuple[NodeState, ...]) -> History:
        """The table with this scoring as its last column; its rows are the nodes of now."""
        while self._past and not end_s - self.length_s < self._past[0][0] < end_s:
            self._past.popleft()  # too old, or of a clock that was set back since
        self._past.append((end_s, {state.node: state.score for state in nodes}))
        names = tuple(sorted(state.node for state in nodes))
        score = [[scores.get(name, np.nan) for _, scores in self._past] for name in names]
        times_s = np.array([time_s for time_s, _ in self._past], np.int64)
        return History(times_s, names, np.array(score, np.float32).reshape(len(names), len(times_s)))
