"""Score a large cluster a run of nodes at a time: a moment each turn -> the rows that are next, and everybody's scores.

To score a hundred thousand threads in one go keeps their newest seconds waiting, and everything else too. In a round
each thread is scored once, in its turn and up to the newest second then; the turns are spread over the stride.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import numpy as np

from clustertwin.telemetry.detection.partition import contiguous_parts, unknown_scores, write_rows
from clustertwin.telemetry.detection.scores import COLUMNS, Scores
from clustertwin.telemetry.moments.moment import Moment


class Rounds:
    """Names of nodes mark what is done, so that threads may come and go within a round."""

    def __init__(self) -> None:
        self._done = ""  # nodes up to this name have had their turn
        self._left: list[str] = []  # the last nodes of the parts to come
        self._latest: tuple[Moment, Scores] | None = None

    @property
    def over(self) -> bool:
        return not self._left

    def begin(self, moment: Moment, parts: int) -> None:
        """A new round, in so many parts or fewer: the threads of a job have their turn together."""
        self._done = ""
        self._left = [moment.nodes[moment.node[rows.stop - 1]] for rows in contiguous_parts(moment, parts)]

    def next(self, moment: Moment) -> slice:
        """The rows whose turn it is now; the last turn takes all that is left."""
        last = self._left.pop(0)
        first = int(np.searchsorted(moment.node, bisect_right(moment.nodes, self._done)))
        end = int(np.searchsorted(moment.node, bisect_right(moment.nodes, last))) if self._left else len(moment)
        self._done = last
        return slice(first, end)

    def merge(self, moment: Moment, rows: slice, scores: Scores) -> Scores:
        """The latest scores of all threads, these among them; unknown where there are none for the threads of now."""
        if rows == slice(0, len(moment)):
            whole = scores
        else:
            whole = self._before(moment, scores)
            write_rows(whole, rows, scores)
        self._latest = moment, whole
        return whole

    def _before(self, moment: Moment, scores: Scores) -> Scores:
        """A copy of the scores until now, or of none where threads came or went, or another detector speaks."""
        if self._latest is not None:
            then, latest = self._latest
            same = then.nodes == moment.nodes and np.array_equal(then.node, moment.node)
            same = same and np.array_equal(then.cpu, moment.cpu) and latest.views == scores.views
            if same and latest.embedding.shape[1] == scores.embedding.shape[1]:
                return replace(latest, **{name: getattr(latest, name).copy() for name in COLUMNS})
        return unknown_scores(scores, len(moment))
