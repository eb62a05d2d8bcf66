"""The reconstruction view: can the autoencoder reconstruct the last 100 s of the thread?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.features.inference import reconstruct
from clustertwin.telemetry.detection.features.observation import Observation
from clustertwin.telemetry.detection.views.contract import Arrays, CalibrationData, DetectorSettings, Surprise, View
from clustertwin.telemetry.detection.views.group_tables import (
    fit_by_group,
    lowest_surprise,
    restore_survivals,
    survival_arrays,
)
from clustertwin.telemetry.detection.views.p_value import SurvivalFunction
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment

_STORED = "errors"


@dataclass(frozen=True, slots=True)
class ReconstructionView(View):
    settings: DetectorSettings
    tables: Mapping[int, SurvivalFunction] = field(default_factory=dict)  # of the log error, by allocation

    @property
    def length_s(self) -> int:
        return WINDOW_S

    def fit(self, data: CalibrationData) -> ReconstructionView:
        normal = data.held_out
        return replace(self, tables=fit_by_group(normal.allocation, _log_error(normal), normal.over(WINDOW_S).known))

    def surprise(self, observation: Observation, earlier: Mapping[str, Surprise]) -> Surprise:
        log_error, known = _log_error(observation), observation.over(WINDOW_S).known
        return lowest_surprise(
            self.tables, observation.allocation, known, lambda table, rows: table.surprise(log_error[rows])
        )

    def expected(self, observation: Observation, views: Mapping[str, View]) -> NDArray[np.float32]:
        return np.concatenate([_mean_reconstruction(observation.stored, moment) for moment in observation.moments])

    def arrays(self) -> Arrays:
        return survival_arrays(_STORED, self.tables)

    def restore(self, arrays: Arrays) -> ReconstructionView:
        return replace(self, tables=restore_survivals(arrays, _STORED))


def _log_error(observation: Observation) -> NDArray[np.float64]:
    """Errors span orders of magnitude; only their logarithm has a tail that a Pareto distribution fits."""
    return np.log(np.asarray(observation.error, np.float64) + 1e-9)


def _mean_reconstruction(stored: StoredModel, moment: Moment) -> NDArray[np.float32]:
    """(thread, channel) over the valid seconds of the last window; NaN without any."""
    valid = moment.windows(WINDOW_S)[1][:, :, None]
    total = valid.sum(1)
    mean = (reconstruct(stored, moment) * valid).sum(1) / np.maximum(total, 1)
    return np.where(total > 0, mean, np.nan).astype(np.float32)
