"""Did a new stage of the program begin? Signals and the job's past -> signs of work that a fault does not show.

A rank that hangs or is slow keeps its memory, touches no new memory and transfers nothing. A program that ends some of
its processes gives their memory back; one that begins another stage often reads more, or starts processes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.job_parts import S, Signals, rate_of
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.detection.questions.usual import Usual

_PART_OF_MEMORY = 0.03  # of what the job has: noise is less
_MORE_FAULTS = 2.0  # times the page faults of its half minute with the most, and 100 a second


def gave_memory_back(now: Signals, own: Usual) -> NDArray[np.bool_]:
    """(part,) whether the job has given back memory that it had all the time."""
    i = S["memory"]
    return np.asarray(now[:, i] < own.lowest[:, i] - _PART_OF_MEMORY * own.centre[:, i])


def transfers_more_than_ever(signals: Signals, usual: Usual, settings: QuestionSettings) -> NDArray[np.bool_]:
    """(part,) whether the job transfers more than ever: a new stage began."""
    i = S["traffic"]
    return np.asarray(signals[:, i] > usual.highest[:, i] + settings.least_traffic)


def had_memory_before(now: Signals, own: Usual) -> NDArray[np.bool_]:
    """(part,) whether the job had as much memory before: it gave some back and takes it again."""
    return np.asarray(now[:, S["memory"]] < own.highest[:, S["memory"]])


def faults_more_than_ever(signals: Signals, own: Usual) -> NDArray[np.bool_]:
    """(part,) whether the job touches new memory much faster than ever: it starts processes, or a new stage began."""
    i = S["page_faults"]
    return np.asarray(rate_of(signals[:, i]) > _MORE_FAULTS * rate_of(own.highest[:, i]) + 1)
