"""The history of node scores: highest score and share of anomalous threads at each scoring -> nodes × time.

Nodes come and go at a large site. A name is looked up once, when the list of nodes changes, and not again for each of
the several hundred scorings that are kept: with thousands of nodes that would take more than a second.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from clustertwin.service.live.snapshot import NodeState, ScoreHistory

_Places = NDArray[np.int32]  # (node,) of each node: its place among all names
_Column = tuple[int, _Places, NDArray[np.float32]]  # when, which nodes, (2, node) score and share
#: Names that no column has any more are forgotten if there are this many more than nodes.
_SPARE = 1000


class NodeScores:
    """Keeps the scores of the last `length_s` seconds."""

    def __init__(self, length_s: int) -> None:
        self.length_s = length_s
        self._columns: deque[_Column] = deque()
        self._rows: deque[NDArray[np.float32]] = deque()  # (2, node) of each column, for the current nodes
        self._place_of: dict[str, int] = {}
        self._latest: tuple[tuple[str, ...], _Places] = (), np.empty(0, np.int32)

    def add(self, end_s: int, nodes: tuple[NodeState, ...]) -> ScoreHistory:
        """The table with this scoring as its last column. Its rows are the current nodes."""
        while self._columns and self._columns[0][0] <= end_s - self.length_s:
            self._columns.popleft()
            self._rows.popleft()
        while self._columns and self._columns[-1][0] >= end_s:
            self._columns.pop()  # from before the clock was set back
            self._rows.pop()
        ordered = sorted(nodes, key=lambda state: state.node)
        before = self._latest[1]
        names, places = self._places(tuple(state.node for state in ordered))
        if places is not before:
            self._rows = deque(self._values_of(column, places) for column in self._columns)
        values = np.array([(state.score, _share(state)) for state in ordered], np.float32).reshape(-1, 2).T
        self._columns.append((end_s, places, values))
        self._rows.append(values)
        times_s = np.array([time_s for time_s, *_ in self._columns], np.int64)
        score, share = np.stack(self._rows, axis=2)
        return ScoreHistory(times_s, names, score, share)

    def _places(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], _Places]:
        """The names and their places: the same objects as long as they do not change."""
        if names != self._latest[0]:
            if len(self._place_of) > 2 * len(names) + _SPARE:
                self._forget_names()
            places = [self._place_of.setdefault(name, len(self._place_of)) for name in names]
            self._latest = names, np.array(places, np.int32)
        return self._latest

    def _forget_names(self) -> None:
        """Give new places to the names that a column has, and forget the others."""
        kept = np.unique(np.concatenate([np.empty(0, np.int32), *(places for _, places, _ in self._columns)]))
        all_names = list(self._place_of)
        self._place_of = {all_names[place]: i for i, place in enumerate(kept.tolist())}
        self._columns = deque(
            (end_s, np.searchsorted(kept, places).astype(np.int32), values) for end_s, places, values in self._columns
        )

    def _values_of(self, column: _Column, places: _Places) -> NDArray[np.float32]:
        """(2, node) of these nodes; NaN for a node that the column does not have."""
        _, own, values = column
        of_all = np.full((2, len(self._place_of)), np.nan, np.float32)
        of_all[:, own] = values
        return of_all[:, places]


def _share(state: NodeState) -> float:
    """The share of a node's scored threads that are above the threshold; NaN without a score."""
    scored = state.threads - state.unknown
    return state.alarming / scored if scored > 0 else float("nan")
