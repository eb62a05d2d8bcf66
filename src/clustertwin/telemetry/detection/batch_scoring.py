"""Score several moments at once: a detector, moments -> the scores of each, equal to those of scoring it alone.

For a small cluster, calls cost more than arithmetic. A dozen moments that are concatenated, as if they were different
nodes with different jobs, cost little more than one. The scores are the same because every view looks at single threads
and single jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

_BATCH = 12  # moments


def score_batches(detector: Detector, moments: Sequence[Moment]) -> Iterator[Scores]:
    """The scores of each moment, in order."""
    for batch in _batches(moments):
        scores = detector.score(concatenate(batch))
        ends = accumulate((len(moment) for moment in batch), initial=0)
        for rows in (slice(*pair) for pair in pairwise(ends)):
            yield scores.take(rows)


def concatenate(moments: Sequence[Moment]) -> Moment:
    """One moment with the threads of all. No two of them share a node or a job."""
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


def _batches(moments: Sequence[Moment]) -> Iterator[Sequence[Moment]]:
    """Runs of moments that share a schema and that all have jobs or all have none.

    Without any job the allocation of a thread is unknown, so moments with jobs and moments without cannot be mixed.
    """
    first = 0
    for i in range(1, len(moments) + 1):
        if i == len(moments) or i - first == _BATCH or not _alike(moments[first], moments[i]):
            yield moments[first:i]
            first = i


def _alike(first: Moment, second: Moment) -> bool:
    return first.schema == second.schema and bool(first.jobs) == bool(second.jobs)
