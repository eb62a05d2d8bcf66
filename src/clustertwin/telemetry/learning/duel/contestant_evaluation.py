"""Evaluate a detector for the duel: held-out normal moments and the golden set -> a contestant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import e, log2, pi

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.duel.duel_decision import Contestant
from clustertwin.telemetry.learning.duel.event_alarms import (
    LOOKS_PER_DAY,
    above_bar,
    event_bar,
    largest_node,
    looks,
    raised,
    scored,
    visibly_harmed,
)
from clustertwin.telemetry.learning.duel.golden_set import GoldenSet, GoldenSetResult, evaluate_on_golden_set
from clustertwin.telemetry.learning.duel.site_golden_set import SiteGoldenSet, evaluate_on_site
from clustertwin.telemetry.moments.moment import Moment

_TICK = 0.01  # a ratio is a count of hundredths of a second
_UNABLE = 1e9  # a figure that is worse than any other, and that JSON can store


@dataclass(frozen=True, slots=True)
class NormalMoments:
    """Held-out moments, and the threads in them that a person called normal: dismissed, or the new normal."""

    moments: tuple[Moment, ...]
    called_normal: tuple[NDArray[np.bool_], ...] = ()  # (thread,) of each moment; empty: nobody said anything


@dataclass(frozen=True, slots=True)
class NormalFigures:
    error: float  # mean squared reconstruction error
    bits: float  # mean description length of a window
    false_alarms: float  # part of the windows above the threshold
    false_events: float  # per node and day that its scores alone would open
    raised: float  # per node and day that findings would open
    strange: float  # part of all looks at a job that its scores find strange
    node_looks: int  # five-minute looks at a node that the last figure is from


def evaluate_contestant(
    name: str, detector: Detector, normal: NormalMoments, golden: GoldenSet | SiteGoldenSet
) -> Contestant:
    """Champion and challengers are evaluated on the same moments."""
    figures = normal_figures(detector, normal)
    return Contestant(
        name,
        error=figures.error,
        false_alarms=figures.false_alarms,
        detection=golden_set_result(detector, golden),
        bits=figures.bits,
        false_events=figures.false_events,
        raised=figures.raised,
        strange=figures.strange,
    )


def unable(name: str, golden: GoldenSet | SiteGoldenSet) -> Contestant:
    """A champion that scores no thread of the day: every challenger is better."""
    return Contestant(name, _UNABLE, 1.0, GoldenSetResult({}, 0.0, golden.sha256), _UNABLE, _UNABLE, _UNABLE, 1.0)


def golden_set_result(detector: Detector, golden: GoldenSet | SiteGoldenSet) -> GoldenSetResult:
    if isinstance(golden, SiteGoldenSet):
        return evaluate_on_site(detector, golden)
    return evaluate_on_golden_set(detector, golden)


def normal_figures(detector: Detector, normal: NormalMoments) -> NormalFigures:
    """How a detector does on normal time. A detector that scores no thread is refused."""
    if not normal.moments:
        raise SettingsError("nothing to evaluate on: there is no held-out moment")
    bar = event_bar(detector, largest_node(normal.moments))
    called_normal = normal.called_normal or tuple(np.zeros(len(moment), np.bool_) for moment in normal.moments)
    errors, scores_of_all, alarms, false, found, node_looks = [], [], list[bool](), 0, 0, 0
    for (moment, scores), normal_rows in zip(scored(detector, normal.moments), called_normal, strict=True):
        known = ~np.isnan(scores.score)
        errors.append(scores.error[known])
        scores_of_all.append(scores.score[known])
        node_looks += len(np.unique(moment.node[known]))
        found_here = raised(moment, scores, detector.threshold)
        for look in looks(moment):
            name = moment.jobs[moment.job[look.rows[0]]] if look.has_job else moment.nodes[moment.node[look.rows[0]]]
            alarm = above_bar(scores, look, bar)
            alarms += [] if alarm is None else [alarm]
            if alarm or name in found_here:
                counts = normal_rows[look.rows].any() or not visibly_harmed(moment, look)
                false += bool(counts and alarm)
                found += bool(counts and name in found_here)
    score, error = np.concatenate(scores_of_all), np.concatenate(errors)
    if not len(score):
        raise SettingsError("nothing to evaluate on: no thread of the held-out moments has a score")
    return NormalFigures(
        error=float(error.mean()),
        bits=float(description_length(detector, error).mean()),
        false_alarms=float((score > detector.threshold).mean()),
        false_events=LOOKS_PER_DAY * false / node_looks,
        raised=LOOKS_PER_DAY * found / node_looks,
        strange=float(np.mean(alarms)),
        node_looks=node_looks,
    )


def description_length(detector: Detector, error: NDArray[np.floating]) -> NDArray[np.float64]:
    """(window,) bits for the embedding and for what the reconstruction misses, in ticks of a hundredth of a second.

    It makes models with embeddings of different sizes comparable: more numbers must save more than they cost. Each
    number of the embedding is stored as precisely as the n values of a window determine it, which takes log2(n) / 2
    bits. What is missed is stored as Gaussian noise of the window's own variance.
    """
    config = detector.stored.model.config
    n = config.shape.length * len(config.shape.inputs)
    variance = np.asarray(error, np.float64) + _TICK**2 / 12  # a tick cannot be resolved further
    bits: NDArray[np.float64] = n / 2 * np.log2(2 * pi * e * variance / _TICK**2) + config.latent / 2 * log2(n)
    return bits


def evaluate_on_normal(detector: Detector, moments: Sequence[Moment]) -> tuple[float, float]:
    """The mean error and the alarming part of all threads that have a score."""
    figures = normal_figures(detector, NormalMoments(tuple(moments)))
    return figures.error, figures.false_alarms
