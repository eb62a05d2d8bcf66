"""Evaluate a detector for the duel: held-out normal moments and the golden set -> a contestant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.duel.duel_decision import Contestant
from clustertwin.telemetry.learning.duel.golden_set import GoldenSet, evaluate_on_golden_set
from clustertwin.telemetry.moments.moment import Moment


def evaluate_contestant(name: str, detector: Detector, held_out: Sequence[Moment], golden: GoldenSet) -> Contestant:
    """Champion and challengers are evaluated on the same moments."""
    error, false_alarms = evaluate_on_normal(detector, held_out)
    result = evaluate_on_golden_set(detector, golden)
    return Contestant(name, error, false_alarms, result, detector.settings.false_alarm_rate)


def evaluate_on_normal(detector: Detector, moments: Sequence[Moment]) -> tuple[float, float]:
    """The mean error and the alarming part of all threads that have a score."""
    scores = [detector.score(moment) for moment in moments]
    if not scores:
        raise SettingsError("nothing to evaluate on: there is no held-out moment")
    score = np.concatenate([of_moment.score for of_moment in scores])
    error = np.concatenate([of_moment.error for of_moment in scores])
    known = ~np.isnan(score)
    if not known.any():
        raise SettingsError("nothing to evaluate on: no thread of the held-out moments is settled and valid")
    return float(error[known].mean()), float((score[known] > detector.threshold).mean())
