"""Judge a detector: held-out normal moments and the golden set -> a contestant of the duel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.duel.golden_set import Golden, detect
from clustertwin.telemetry.learning.duel.verdict_of_duel import Contestant
from clustertwin.telemetry.moments.moment import Moment


def judge(name: str, detector: Detector, held_out: Sequence[Moment], golden: Golden) -> Contestant:
    """What counts in the duel; the same moments for everyone, the champion included."""
    error, false_alarms = on_normal(detector, held_out)
    return Contestant(name, error, false_alarms, detect(detector, golden), detector.settings.false_alarm_rate)


def on_normal(detector: Detector, moments: Sequence[Moment]) -> tuple[float, float]:
    """The mean error and the part that alarms, over all threads whose score is known."""
    scored = [detector.score(moment) for moment in moments]
    if not scored:
        raise SettingsError("nothing to judge on: no held-out moment")
    score = np.concatenate([one.score for one in scored])
    error = np.concatenate([one.error for one in scored])
    known = ~np.isnan(score)
    if not known.any():
        raise SettingsError("nothing to judge on: no thread of the held-out moments is settled and valid")
    return float(error[known].mean()), float((score[known] > detector.threshold).mean())
