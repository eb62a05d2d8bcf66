"""A candidate: one rule applied to all parts at once -> how far each part is beyond it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.finding import Question

PerPart = NDArray[np.floating]  # (part,)


@dataclass(frozen=True, slots=True)
class Candidate:
    """From a ratio of 1 on a part has a finding; NaN: the rule cannot tell."""

    question: Question
    cause: str
    signal: str  # the channel that shows it
    ratio: PerPart
    value: PerPart
    usual: PerPart


def only_if(condition: NDArray[np.bool_], ratio: PerPart) -> PerPart:
    """The ratio where the condition holds, at most just below 1 elsewhere."""
    return np.where(condition, ratio, np.minimum(ratio, 0.99))
