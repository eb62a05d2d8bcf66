"""Explain why threads are unusual: detector, moment, scores, threads -> channels, seconds and expected values.

An explanation consists of numbers. Its text is made from those numbers alone, so it cannot contradict them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.events.causes import UNUSUAL, cause_of
from clustertwin.telemetry.detection.events.diagnosis import Diagnosis, diagnose
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.event_title import Baseline
from clustertwin.telemetry.detection.events.explanation_text import explain_in_words, known_fault
from clustertwin.telemetry.detection.events.known_mean import known_mean
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:  # these modules import torch, which takes seconds
    from clustertwin.telemetry.detection.views.contract import ClosestFault

Array = NDArray[np.float64]

_SHORTEST_S = 30  # seconds of a comparison
_SMALLEST = 0.005  # a smaller difference of means is not reported


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
    """The mean of one channel: of these threads, as expected, of their neighbours, and before; None: unknown.

    Field names are stored in the database.
    """

    channel: str
    seen: float
    expected: float | None
    neighbours: float | None
    before: float | None = None  # of the same threads, earlier in the same job


@dataclass(frozen=True, slots=True)
class NodeRatio:
    """One channel of the nodes of the threads: its mean over the window and over these nodes."""

    channel: str
    seen: float


@dataclass(frozen=True, slots=True)
class Measure:
    """What a finding measured: a channel of the job or its node, or a signal derived from channels."""

    channel: str
    value: float
    usual: float | None
    compared_with: Baseline


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
    cause: str = ""  # a row of `CAUSES`; empty: stored by a release without causes
    against: Baseline = ""  # what the main channel is compared with; empty: it differs from nothing that is known
    of_threads: int = 0  # of the jobs, including `threads`
    by_shape: bool = True  # whether the shape of the job shows the cause; otherwise a finding gave it
    measure: Measure | None = None  # of that finding

    @property
    def channel(self) -> str:
        return self.ratios[0].channel

    @property
    def known_fault(self) -> str:
        """The known fault that may be named: the nearest one, near enough, and fitting the cause; empty: none."""
        return known_fault(self)

    @property
    def next_step(self) -> str:
        return cause_of(self.cause).next_step

    @property
    def before(self) -> dict[str, float]:
        return {ratio.channel: ratio.before for ratio in self.ratios if ratio.before is not None}

    @property
    def sentence(self) -> str:
        """The explanation as text, in one to three sentences."""
        return explain_in_words(self)


def with_measure(why: Explanation, found: Finding) -> Explanation:
    """The explanation with what the finding measured. How far a thread is from its job has no unit that people know."""
    if found.channel == "apart":
        return why
    if np.isnan(found.usual):
        return replace(why, measure=Measure(found.channel, found.value, None, ""))
    return replace(why, measure=Measure(found.channel, found.value, found.usual, found.compared_with))


def explain(
    detector: Explainable,
    moment: Moment,
    scores: Scores,
    threads: NDArray[np.intp],
    landmarks: ReferencePoints | None = None,
    event: Event | None = None,
    before: Mapping[str, float] | None = None,
) -> Explanation | None:
    """Explain the scores of these threads.

    An event's cause decides which of its job's threads are described and by which channel. `before` are the means of
    the threads before the event, if they are known from an earlier explanation. None if none of the seconds is known,
    or if the detector lacks the view: it may have replaced the one that scored.
    """
    if not len(threads) or not scores.views:
        return None
    worst = int(threads[np.argmax(np.nan_to_num(scores.score[threads], nan=-1.0))])
    view = scores.deciding_view(worst) or scores.views[0]
    if view not in detector.views:
        return None
    diagnosis = None
    if event is not None:
        diagnosis = diagnose_job(moment, threads, event.cause)
        if diagnosis is not None and diagnosis.cause != event.cause:
            diagnosis = None
    if diagnosis is not None:
        threads = diagnosis.telling
    length_s, until_s = _seconds(moment, detector.length_s(view), event, diagnosis)
    values, valid = _window(moment, length_s)
    known = threads[valid[threads].any(1)]
    seen = _means(values, valid, known)  # (channel,)
    if np.isnan(seen).all():
        return None
    expected = _mean_of_known(detector.expected(moment, known, view))
    neighbours, neighbours_of = _neighbours(moment, valid, threads)
    theirs = _means(values, valid, neighbours)
    own_past = _own_past(moment, known, until_s)
    for name, value in (before or {}).items():
        if name in moment.schema.names and np.isnan(own_past[moment.schema.index(name)]):
            own_past[moment.schema.index(name)] = value
    baselines: dict[Baseline, Array] = {
        "own past": own_past,
        "ranks": theirs if neighbours_of == "job" else np.full_like(theirs, np.nan),
        # The peers views expect the median of the job, which the ranks stand for.
        "site": np.full_like(theirs, np.nan) if view.startswith("peers") and neighbours_of == "job" else expected,
    }
    telling = moment.schema.index(diagnosis.channel) if diagnosis else None
    against, order = _by_relevance(moment, seen, baselines, telling)
    order.sort(key=lambda c: bool(np.isnan(expected[c]) and not np.isnan(expected).all()))  # the detector's own first
    baseline = baselines[against] if against else np.where(np.isnan(expected), theirs, expected)
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
            Ratio(
                moment.schema.names[c],
                float(seen[c]),
                _or_none(expected[c]),
                _or_none(theirs[c]),
                _or_none(own_past[c]),
            )
            for c in order
        ),
        nearest=landmarks.nearest(scores.embedding[known]) if landmarks else (),
        region=fault.name if fault else "",
        distance=fault.distance if fault else None,
        kept=fault.normal_distance if fault else None,
        kept_ratio=fault.farther_ratio if fault else 0.999,
        node_ratios=_node_ratios(moment, known, values.shape[1]),
        cause=_cause(event, diagnosis),
        by_shape=diagnosis is not None,
        against=against,
        of_threads=len(known) + (len(neighbours) if neighbours_of == "job" else 0),
    )


def diagnose_job(moment: Moment, threads: NDArray[np.intp], before: str = "") -> Diagnosis | None:
    """The diagnosis of the jobs of these threads; None without a job."""
    jobs = np.setdiff1d(moment.job[threads], [-1])
    return diagnose(moment, np.flatnonzero(np.isin(moment.job, jobs)), before) if len(jobs) else None


def _cause(event: Event | None, diagnosis: Diagnosis | None) -> str:
    if diagnosis is not None:
        return diagnosis.cause
    return event.cause if event is not None and event.by_finding else UNUSUAL


def _seconds(moment: Moment, view_s: int, event: Event | None, diagnosis: Diagnosis | None) -> tuple[int, int | None]:
    """How many of the last seconds are described, and the time before which the threads' own past lies, if known."""
    most_s = moment.values.shape[1]
    length_s = min(view_s, most_s)
    if diagnosis is not None:
        return min(max(moment.end_s - diagnosis.since_s, _SHORTEST_S), most_s), diagnosis.since_s
    if event is not None:  # it began within the window that ends at its onset
        since_onset_s = max(moment.end_s - event.onset_s, 0)
        return min(since_onset_s + _SHORTEST_S, length_s), event.onset_s - 2 * _SHORTEST_S
    return length_s, None


def _own_past(moment: Moment, threads: NDArray[np.intp], until_s: int | None) -> Array:
    """(channel,) the means of these threads earlier in their jobs, before `until_s`; NaN: too few seconds are known."""
    seconds = 0 if until_s is None else moment.values.shape[1] - (moment.end_s - until_s)
    if seconds < _SHORTEST_S:
        return np.full(len(moment.schema), np.nan)
    in_job = np.arange(moment.values.shape[1], 0, -1)[:seconds] <= moment.age_s[threads, None]
    valid = moment.valid[threads, :seconds] & in_job
    if valid.any(0).sum() < _SHORTEST_S:
        return np.full(len(moment.schema), np.nan)
    return _means(moment.values[threads, :seconds], valid, np.arange(len(threads)))


def _node_ratios(moment: Moment, threads: NDArray[np.intp], length_s: int) -> tuple[NodeRatio, ...]:
    """The channels of the nodes of these threads, over the last seconds."""
    if moment.node_channels is None:
        return ()
    values = moment.node_channels.values[np.unique(moment.node[threads]), -length_s:]  # (node, second, channel)
    means = _mean_of_known(values.reshape(-1, values.shape[2]))
    names = moment.node_channels.schema.names
    return tuple(NodeRatio(name, float(mean)) for name, mean in zip(names, means, strict=True) if not np.isnan(mean))


def _by_relevance(
    moment: Moment, seen: Array, baselines: Mapping[Baseline, Array], main: int | None
) -> tuple[Baseline, list[int]]:
    """The baseline to compare with, and the channels with data, the main reason first.

    The baseline is the one that the channels differ from most; empty if they differ from none. Differences of roots
    give a small channel its weight: 8 % system instead of 0 % says more than 90 % user instead of 98 %. In a simplex,
    the channel that grew says more than the one that shrank.
    """
    best: Baseline = ""
    gains: dict[Baseline, Array] = {}
    bounded = list(moment.schema.bounded)
    for name, usual in baselines.items():
        gain = np.sqrt(np.maximum(seen, 0)) - np.sqrt(np.maximum(usual, 0))
        if main is not None:
            gain[np.arange(len(gain)) != main] = np.nan
            gain = np.abs(gain)
        gain[bounded] = np.abs(gain[bounded])
        gain[np.abs(seen - usual) < _SMALLEST] = np.nan
        if not np.isnan(gain).all() and np.nanmax(gain) > 0:
            gains[name] = gain
            if not best or np.nanmax(gain) > np.nanmax(gains[best]):
                best = name
    rank = np.nan_to_num(gains[best] if best else seen, nan=-2.0)
    if main is not None:
        rank[main] = np.inf
    return best, [c for c in np.argsort(-rank, kind="stable").tolist() if not np.isnan(seen[c])]


def _window(moment: Moment, length_s: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The last seconds; those in which a thread had another job are not valid."""
    values, valid = moment.windows(length_s)
    return values, valid & (np.arange(length_s, 0, -1) <= moment.age_s[:, None])


def _means(values: NDArray[np.float32], valid: NDArray[np.bool_], rows: NDArray[np.intp]) -> Array:
    """(channel,) over the valid seconds of these threads; NaN where a channel has none."""
    return known_mean(values[rows], valid[rows, :, None] & np.isfinite(values[rows]), (0, 1))


def _mean_of_known(rows: NDArray[np.float32]) -> Array:
    """(channel,) the mean over the threads that are not NaN; NaN where all are."""
    return known_mean(rows, ~np.isnan(rows), 0)


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
