"""The peers view: does the thread deviate from the other threads of its job?

In a job of two threads both deviate equally. Where one of them is unusual by itself, the other is excused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.features.observation import Observation
from clustertwin.telemetry.detection.features.peer_deviation import Deviation
from clustertwin.telemetry.detection.views.contract import Arrays, CalibrationData, DetectorSettings, Surprise, View
from clustertwin.telemetry.detection.views.group_tables import (
    fit_by_group,
    lowest_surprise,
    restore_survivals,
    survival_arrays,
)
from clustertwin.telemetry.detection.views.p_value import SurvivalFunction

#: Views that look at a thread without its peers.
SINGLE_THREAD_VIEWS = ("density", "density-5min")
EXCUSED_ABOVE = 4.0  # the surprise of the partner, by those views
_MANY = 3  # jobs of three threads and more share a table; pairs have their own


@dataclass(frozen=True, slots=True)
class PeersView(View):
    settings: DetectorSettings
    length_s: int
    tables: Mapping[int, SurvivalFunction] = field(default_factory=dict)  # of the distance, for 2 threads and for more

    def fit(self, data: CalibrationData) -> PeersView:
        window = data.held_out.over(self.length_s)
        deviation = window.deviation
        known = (deviation.group_size >= 2) & window.known
        return replace(self, tables=fit_by_group(_group(deviation), deviation.distance, known))

    def surprise(self, observation: Observation, earlier: Mapping[str, Surprise]) -> Surprise:
        deviation = observation.over(self.length_s).deviation
        compared = (deviation.group_size >= 2) & ~_excused(deviation, _single_thread_surprise(observation, earlier))
        return lowest_surprise(
            self.tables, _group(deviation), compared, lambda table, rows: table.surprise(deviation.distance[rows])
        )

    def expected(self, observation: Observation, views: Mapping[str, View]) -> NDArray[np.float32]:
        """The median of the job."""
        return observation.over(self.length_s).deviation.median

    def arrays(self) -> Arrays:
        return survival_arrays(self._stored, self.tables)

    def restore(self, arrays: Arrays) -> PeersView:
        return replace(self, tables=restore_survivals(arrays, self._stored))

    @property
    def _stored(self) -> str:
        return f"apart/{self.length_s}"


def _group(deviation: Deviation) -> NDArray[np.int32]:
    return np.minimum(deviation.group_size, _MANY)


def _single_thread_surprise(observation: Observation, earlier: Mapping[str, Surprise]) -> Surprise:
    """(thread,) the highest surprise of the views that look at single threads; 0: unknown."""
    columns = [earlier[name] for name in SINGLE_THREAD_VIEWS if name in earlier]
    return np.nan_to_num(np.fmax.reduce(columns)) if columns else np.zeros(len(observation))


def _excused(deviation: Deviation, surprise: Surprise) -> NDArray[np.bool_]:
    """(thread,) in a pair, the thread whose partner is clearly unusual and more so than itself."""
    partners = surprise[deviation.partner]
    return (deviation.partner >= 0) & (partners > EXCUSED_ABOVE) & (partners > surprise)
