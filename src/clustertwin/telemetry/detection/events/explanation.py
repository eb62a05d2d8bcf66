"""Explain why threads are unusual: detector, moment, scores, threads -> channels, seconds and expected values.

An explanation consists of numbers. Its text is made from those numbers alone, so it cannot contradict them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation_text import explain_in_words
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:  # these modules import torch, which takes seconds
    from clustertwin.telemetry.detection.views.contract import ClosestFault

Array = NDArray[np.float64]


class ReferencePoints(Protocol):
    """Known kinds of jobs in the embedding."""

    def nearest(self, embedding: NDArray[np.float32]) -> tuple[tuple[str, float], ...]:
        """(n, latent) -> the closest kinds and the distance to each."""
        ...


class Explainable(Protocol):
    """A detector that can say what it considers normal."""

    @property
    def views(self) -> tuple[str, ...]: ...

    def length_s(self, view: str) -> int:
        """The seconds that a view looks at."""
        ...

    def expected(self, moment: Moment, threads: NDArray[np.intp], view: str) -> NDArray[np.float32]:
        """(n, channel of the moment) mean ratios over those seconds; NaN: unknown."""
        ...

    def closest_fault(
        self, moment: Moment, scores: Scores, threads: NDArray[np.intp], view: str
    ) -> ClosestFault | None:
        """The known fault that these threads are closest to, if the view knows faults."""
        ...


@dataclass(frozen=True, slots=True)
class Ratio:
    """The mean of one channel: of these threads, as expected, and of their neighbours; None: unknown.

    Field names are stored in the database.
    """

    channel: str
    seen: float
    expected: float | None
    neighbours: float | None


@dataclass(frozen=True, slots=True)
class NodeRatio:
    """One channel of the nodes of the threads: its mean over the window and over these nodes."""

    channel: str
    seen: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """`ratios` has every channel with data, the main reason first. Field names are stored in the database."""

    view: str
    start_s: int
    end_s: int
    far_s: int  # seconds in which the main channel was closer to `seen` than to the value it is compared with
    threads: int
    neighbours: int  # number of threads that are compared with
    neighbours_of: str  # "job", "node", or "" without neighbours
    ratios: tuple[Ratio, ...]
    nearest: tuple[tuple[str, float], ...] = ()  # known kinds of jobs in the embedding, with the distance to each
    region: str = ""  # the closest known fault, if the view names one
    distance: float | None = None  # in the embedding, from that fault
    kept: float | None = None  # `kept_ratio` of normal threads are farther from that fault than this
    kept_ratio: float = 0.999
    node_ratios: tuple[NodeRatio, ...] = ()  # context: memory and pressure of the nodes, where known

    @property
    def channel(self) -> str:
        return self.ratios[0].channel

    @property
    def sentence(self) -> str:
        """The explanation as text, in one to three sentences."""
        return explain_in_words(self)


def rows_of(moment: Moment, event: Event) -> NDArray[np.intp]:
    """The rows of an event's threads in a moment; threads that are not in it are left out."""
    row = {(moment.nodes[n], int(c)): i for i, (n, c) in enumerate(zip(moment.node, moment.cpu, strict=True))}
    return np.array([row[node, cpu] for node, cpus in event.places for cpu in cpus if (node, cpu) in row], np.intp)


def rows_to_explain(moment: Moment, event: Event) -> NDArray[np.intp]:
    """All rows that an explanation of the event depends on: its nodes, and the jobs of its threads on other nodes."""
    numbers = [i for i, node in enumerate(moment.nodes) if node in set(event.nodes)]
    on_nodes = np.flatnonzero(np.isin(moment.node, numbers))
    cpus = dict(event.places)
    of_event = [row for row in on_nodes.tolist() if moment.cpu[row] in cpus[moment.nodes[moment.node[row]]]]
    jobs = np.unique(moment.job[of_event])
    return np.union1d(on_nodes, np.flatnonzero(np.isin(moment.job, jobs[jobs >= 0])))


def explain(
    detector: Explainable,
    moment: Moment,
    scores: Scores,
    threads: NDArray[np.intp],
    landmarks: ReferencePoints | None = None,
) -> Explanation | None:
    """Explain the scores of these threads.

    None if none of their seconds is known, or if the detector lacks the view: it may have replaced the one that scored.
    """
    if not len(threads) or not scores.views:
        return None
    worst = int(threads[np.argmax(np.nan_to_num(scores.score[threads], nan=-1.0))])
    view = scores.deciding_view(worst) or scores.views[0]
    if view not in detector.views:
        return None
    values, valid = _window(moment, min(detector.length_s(view), moment.values.shape[1]))
    known = threads[valid[threads].any(1)]
    seen = _means(values, valid, known)  # (channel,)
    if np.isnan(seen).all():
        return None
    expected = _mean_of_known(detector.expected(moment, known, view))
    neighbours, neighbours_of = _neighbours(moment, valid, threads)
    theirs = _means(values, valid, neighbours)
    baseline = np.where(np.isnan(expected), theirs, expected)
    order = _by_relevance(moment, seen, expected, baseline)
    main = order[0]
    fault = detector.closest_fault(moment, scores, known, view)
    return Explanation(
        view=view,
        start_s=moment.end_s - values.shape[1],
        end_s=moment.end_s,
        far_s=_far_s(values[known, :, main], valid[known], float(seen[main]), float(baseline[main])),
        threads=len(known),
        neighbours=len(neighbours),
        neighbours_of=neighbours_of,
        ratios=tuple(
            Ratio(moment.schema.names[c], float(seen[c]), _or_none(expected[c]), _or_none(theirs[c])) for c in order
        ),
        nearest=landmarks.nearest(scores.embedding[known]) if landmarks else (),
        region=fault.name if fault else "",
        distance=fault.distance if fault else None,
        kept=fault.normal_distance if fault else None,
        kept_ratio=fault.farther_ratio if fault else 0.999,
        node_ratios=_node_ratios(moment, known, values.shape[1]),
    )


def _node_ratios(moment: Moment, threads: NDArray[np.intp], length_s: int) -> tuple[NodeRatio, ...]:
    """The channels of the nodes of these threads, over the last seconds."""
    if moment.node_channels is None:
        return ()
    values = moment.node_channels.values[np.unique(moment.node[threads]), -length_s:]  # (node, second, channel)
    means = _mean_of_known(values.reshape(-1, values.shape[2]))
    names = moment.node_channels.schema.names
    return tuple(NodeRatio(name, float(mean)) for name, mean in zip(names, means, strict=True) if not np.isnan(mean))


def _by_relevance(moment: Moment, seen: Array, expected: Array, baseline: Array) -> list[int]:
    """The channels with data, the main reason first.

    Channels that the view has an expectation for come first, because the view decided by them. In a simplex, the
    channel that grew says more than the one that shrank: "iowait 70 %", not "user 20 %".
    """
    difference = seen - baseline
    bounded = list(moment.schema.bounded)
    difference[bounded] = np.abs(difference[bounded])
    if np.isnan(difference).all():
        difference = seen
    of_view = ~np.isnan(expected) if (~np.isnan(expected)).any() else np.ones_like(expected, np.bool_)
    rank = np.lexsort((-np.nan_to_num(difference, nan=-2.0), ~of_view))
    return [c for c in rank.tolist() if not np.isnan(seen[c])]


def _window(moment: Moment, length_s: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The last seconds; those in which a thread had another job are not valid."""
    values, valid = moment.windows(length_s)
    return values, valid & (np.arange(length_s, 0, -1) <= moment.age_s[:, None])


def _means(values: NDArray[np.float32], valid: NDArray[np.bool_], rows: NDArray[np.intp]) -> Array:
    """(channel,) over the valid seconds of these threads; NaN where a channel has none."""
    known = valid[rows, :, None] & np.isfinite(values[rows])
    count = known.sum((0, 1))
    total = np.where(known, values[rows], 0).sum((0, 1), dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean_of_known(rows: NDArray[np.float32]) -> Array:
    """(channel,) the mean over the threads that are not NaN; NaN where all are."""
    known = ~np.isnan(rows)
    count = known.sum(0)
    total = np.where(known, rows, 0).sum(0, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _neighbours(moment: Moment, valid: NDArray[np.bool_], threads: NDArray[np.intp]) -> tuple[NDArray[np.intp], str]:
    """The other threads of the same jobs, or else of the same nodes, that have valid seconds."""
    others = np.ones(len(moment), np.bool_)
    others[threads] = False
    candidates = valid.any(1) & others
    jobs = np.setdiff1d(moment.job[threads], [-1])
    same_job = np.flatnonzero(candidates & np.isin(moment.job, jobs))
    if len(same_job):
        return same_job, "job"
    same_node = np.flatnonzero(candidates & np.isin(moment.node, moment.node[threads]))
    return same_node, "node" if len(same_node) else ""


def _far_s(values: NDArray[np.float32], valid: NDArray[np.bool_], seen: float, baseline: float) -> int:
    """Seconds in which the mean over the threads is closer to `seen` than to the baseline."""
    if np.isnan(baseline) or seen == baseline:
        return 0
    known = valid & np.isfinite(values)
    count = known.sum(0)  # (second,)
    mean = np.where(known, values, 0).sum(0) / np.maximum(count, 1)
    far = (mean - (seen + baseline) / 2) * np.sign(seen - baseline) > 0
    return int((far & (count > 0)).sum())


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
