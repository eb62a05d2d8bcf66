"""Score a large cluster in several turns: a moment for each turn -> the rows to score, and the scores of all threads.

Scoring a hundred thousand threads at once would delay everything else. In a round, each thread is scored once, with the
newest second at its turn. The turns are spread over the stride.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import numpy as np

from clustertwin.telemetry.detection.partition import contiguous_parts, unknown_scores, write_rows
from clustertwin.telemetry.detection.scores import COLUMNS, Scores
from clustertwin.telemetry.moments.moment import Moment


class ScoringRound:
    """One round of turns. It remembers node names, not rows, because threads can appear or vanish within a round."""

    def __init__(self) -> None:
        self._done = ""  # nodes up to this name are scored
        self._left: list[str] = []  # the last node of each turn to come
        self._latest: tuple[Moment, Scores] | None = None

    @property
    def over(self) -> bool:
        return not self._left

    def begin(self, moment: Moment, parts: int) -> None:
        """Start a round of at most `parts` turns. The threads of a job are scored in the same turn."""
        self._done = ""
        self._left = [moment.nodes[moment.node[rows.stop - 1]] for rows in contiguous_parts(moment, parts)]

    def next(self, moment: Moment) -> slice:
        """The rows of this turn. The last turn has all the remaining rows."""
        last = self._left.pop(0)
        first = int(np.searchsorted(moment.node, bisect_right(moment.nodes, self._done)))
        end = int(np.searchsorted(moment.node, bisect_right(moment.nodes, last))) if self._left else len(moment)
        self._done = last
        return slice(first, end)

    def merge(self, moment: Moment, rows: slice, scores: Scores) -> Scores:
        """The latest scores of all threads, including these; unknown for a thread without any."""
        if rows == slice(0, len(moment)):
            merged = scores
        else:
            merged = self._previous(moment, scores)
            write_rows(merged, rows, scores)
        self._latest = moment, merged
        return merged

    def _previous(self, moment: Moment, scores: Scores) -> Scores:
        """A copy of the previous scores; unknown scores if the threads or the detector have changed."""
        if self._latest is not None:
            earlier, latest = self._latest
            same = earlier.nodes == moment.nodes and np.array_equal(earlier.node, moment.node)
            same = same and np.array_equal(earlier.cpu, moment.cpu) and latest.views == scores.views
            if same and latest.embedding.shape[1] == scores.embedding.shape[1]:
                return replace(latest, **{name: getattr(latest, name).copy() for name in COLUMNS})
        return unknown_scores(scores, len(moment))
