"""The contract of a view: normal observations -> a fitted view; an observation -> the surprise of each thread.

A view is an immutable object. The table (`view_table`) makes it unfitted; `fit` and `restore` return a fitted one. A
view that had nothing to fit stores no arrays, and the detector leaves it out. `check_view` tests the contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.features.observation import Observation

Arrays = Mapping[str, NDArray[np.float32]]
Surprise = NDArray[np.float64]  # (thread,) -log10 of a p-value; NaN where the view cannot tell


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """The names of these fields are stored with every detector."""

    false_alarm_rate: float = 1e-3  # share of normal windows above the threshold
    enough: float = 0.8  # share of a window's seconds that must be valid; otherwise the score is unknown
    components: int = 16  # of each Gaussian mixture
    learn: float = 0.6  # share of the moments, the first ones, that mixtures are fitted to; p-values come from the rest
    seed: int = 0


@dataclass(frozen=True, slots=True)
class CalibrationData:
    """Normal threads. No second is in both observations."""

    reference: Observation  # to fit models of normal behaviour to
    measured: int  # rows of `reference` that were measured; the rows after them are made up
    held_out: Observation  # to take p-values from


@dataclass(frozen=True, slots=True)
class ClosestFault:
    """The known fault that some threads are closest to, relative to the distance of normal threads."""

    name: str
    distance: float  # in the embedding, of the closest thread
    normal_distance: float  # `farther_ratio` of normal threads are farther away than this
    farther_ratio: float


class View(ABC):
    """One way to tell unusual threads from normal ones."""

    __slots__ = ()

    @property
    @abstractmethod
    def length_s(self) -> int:
        """The seconds that the view looks at: one of `LENGTHS_S`."""

    @abstractmethod
    def fit(self, data: CalibrationData) -> Self:
        """The view fitted to normal threads."""

    @abstractmethod
    def surprise(self, observation: Observation, earlier: Mapping[str, Surprise]) -> Surprise:
        """(thread,) -log10 of the share of normal threads that look at least this unusual; NaN: unknown.

        `earlier` holds the surprise of the detector's views that come before this one in the table, by name.
        """

    @abstractmethod
    def expected(self, observation: Observation, views: Mapping[str, View]) -> NDArray[np.float32]:
        """(thread, channel) the mean ratios of normal threads in this place, in the model's channels; NaN: unknown.

        `views` holds the detector's views, for a view that has no expectation of its own.
        """

    @abstractmethod
    def arrays(self) -> Arrays:
        """The arrays to store; none if the view is not fitted. Each key begins with a name that only this view uses."""

    @abstractmethod
    def restore(self, arrays: Arrays) -> Self:
        """The view with its tables from the arrays of a whole detector; unfitted if none of its keys is there."""

    def closest_fault(self, embedding: NDArray[np.float32], allocation: NDArray[np.int8]) -> ClosestFault | None:
        """The known fault that some threads are closest to; None for a view that knows no faults."""
        return None
