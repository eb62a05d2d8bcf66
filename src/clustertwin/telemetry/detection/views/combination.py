"""Combine the views of a detector into one score: surprise of each view -> one calibrated -log10 p-value.

The highest surprise counts. A maximum over several views is larger by chance than a single view, so it is calibrated
again: one threshold then has one stated false-alarm rate. How much larger it is depends on how many views know a
thread, so threads are grouped by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.features.observation import ALLOCATED, Observation
from clustertwin.telemetry.detection.views.contract import Arrays, Surprise
from clustertwin.telemetry.detection.views.group_tables import (
    fit_by_group,
    lowest_surprise,
    restore_survivals,
    survival_arrays,
)
from clustertwin.telemetry.detection.views.p_value import SurvivalFunction, fit_exponential_tail
from clustertwin.telemetry.moments.moment import WINDOW_S

MAX_SCORE = 30.0  # the tail fit cannot resolve p-values below 1e-30
_WITHOUT_PEERS, _WITH_PEERS = 3, 4  # groups of allocated threads; the others are grouped by their allocation
_STORED = "whole"


@dataclass(frozen=True, slots=True)
class Combination:
    """The calibrated maximum of the views."""

    tables: Mapping[int, SurvivalFunction]  # of the maximum, by group

    def score(self, observation: Observation, surprise: NDArray[np.float64]) -> NDArray[np.float32]:
        """(thread, view) -> (thread,)"""
        known, highest = observation.over(WINDOW_S).known, _highest(surprise)
        with np.errstate(invalid="ignore"):
            score = lowest_surprise(
                self.tables, _groups(observation), known, lambda table, rows: table.surprise(highest[rows])
            )
        return np.minimum(score, MAX_SCORE).astype(np.float32)

    def arrays(self) -> Arrays:
        return survival_arrays(_STORED, self.tables)

    @classmethod
    def restore(cls, arrays: Arrays) -> Combination:
        return cls(restore_survivals(arrays, _STORED))


def fit_combination(normal: Observation, surprise: NDArray[np.float64]) -> Combination:
    """Fit to normal threads and the surprise (thread, view) that the views give them."""
    known = normal.over(WINDOW_S).known
    return Combination(fit_by_group(_groups(normal), _highest(surprise), known, fit_exponential_tail))


def _highest(surprise: NDArray[np.float64]) -> Surprise:
    """(thread,) NaN where no view knows the thread."""
    return np.asarray(np.fmax.reduce(surprise, axis=1, initial=np.nan))


def _groups(observation: Observation) -> NDArray[np.int8]:
    """(thread,) UNALLOCATED, UNKNOWN, allocated without peers or allocated with peers."""
    has_peers = observation.over(WINDOW_S).deviation.group_size >= 2
    allocated = np.where(has_peers, _WITH_PEERS, _WITHOUT_PEERS)
    return np.where(observation.allocation == ALLOCATED, allocated, observation.allocation).astype(np.int8)
