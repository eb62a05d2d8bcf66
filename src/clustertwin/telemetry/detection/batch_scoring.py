"""Score several moments in one go: a detector, moments -> the scores of each, as if it had been scored alone.

A small cluster's moment costs more in calls than in sums. Laid side by side, as if they were other nodes with other
jobs, a dozen cost little more than one. A detector may be asked so whose views look at single threads and single jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

_TOGETHER = 12  # moments


def score_together(detector: Detector, moments: Sequence[Moment]) -> Iterator[Scores]:
    """In the order of the moments."""
    for group in _groups(moments):
        scores = detector.score(side_by_side(group))
        ends = accumulate((len(moment) for moment in group), initial=0)
        for rows in (slice(*pair) for pair in pairwise(ends)):
            yield scores.take(rows)


def side_by_side(moments: Sequence[Moment]) -> Moment:
    """The threads of all, with names of nodes and jobs that no two have in common."""
    nodes = list(accumulate((len(moment.nodes) for moment in moments), initial=0))
    jobs = list(accumulate((len(moment.jobs) for moment in moments), initial=0))
    return Moment(
        moments[-1].end_s,
        moments[0].schema,
        np.concatenate([moment.values for moment in moments]),
        np.concatenate([moment.valid for moment in moments]),
        tuple(f"{moment.end_s}/{name}" for moment in moments for name in moment.nodes),
        np.concatenate([moment.node + first for moment, first in zip(moments, nodes, strict=False)]),
        np.concatenate([moment.cpu for moment in moments]),
        tuple(f"{moment.end_s}/{name}" for moment in moments for name in moment.jobs),
        np.concatenate(
            [
                np.where(moment.job >= 0, moment.job + first, -1).astype(np.int32)
                for moment, first in zip(moments, jobs, strict=False)
            ]
        ),
        np.concatenate([moment.age_s for moment in moments]),
    )


def _groups(moments: Sequence[Moment]) -> Iterator[Sequence[Moment]]:
    """Runs of moments that know of jobs, or of such that know of none: a free thread means another thing there."""
    first = 0
    for i in range(1, len(moments) + 1):
        if i == len(moments) or i - first == _TOGETHER or bool(moments[i].jobs) != bool(moments[first].jobs):
            yield moments[first:i]
            first = i
