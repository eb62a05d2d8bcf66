"""The density view: are the thread's statistics usual, given that a job holds it or none does?

A Gaussian mixture of each allocation says how likely the statistics are. P-values come from held-out windows. Where
these are few, windows of the reference are added by two-fold cross-fitting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.features.observation import ALLOCATIONS, Observation
from clustertwin.telemetry.detection.views.contract import Arrays, CalibrationData, DetectorSettings, Surprise, View
from clustertwin.telemetry.detection.views.gaussian_mixture import GaussianMixture, fit_mixture
from clustertwin.telemetry.detection.views.group_tables import lowest_surprise, stored_groups, tables_for
from clustertwin.telemetry.detection.views.p_value import MIN_SAMPLE, SurvivalFunction, fit_pareto_tail

PLENTY = 5_000  # held-out windows of an allocation; with fewer, the reference is cross-fitted too
TURNS = 10  # alternating pieces of the reference, so that both folds contain mornings and evenings


@dataclass(frozen=True, slots=True)
class CalibratedMixture:
    """The mixture of one allocation, and how unlikely normal threads are under it."""

    mixture: GaussianMixture
    survival: SurvivalFunction

    def surprise(self, features: NDArray[np.float32]) -> Surprise:
        return self.survival.surprise(self.mixture.negative_log_likelihood(features))


@dataclass(frozen=True, slots=True)
class DensityView(View):
    settings: DetectorSettings
    length_s: int
    tables: Mapping[int, CalibratedMixture] = field(default_factory=dict)  # by allocation

    def fit(self, data: CalibrationData) -> DensityView:
        reference, normal = data.reference.over(self.length_s), data.held_out.over(self.length_s)
        tables = {}
        for allocation in ALLOCATIONS:
            fit = reference.known & (data.reference.allocation == allocation)
            check = normal.known & (data.held_out.allocation == allocation)
            if min(fit.sum(), check.sum()) < MIN_SAMPLE:
                continue
            features, mean = reference.statistics.features, reference.statistics.mean
            mixture = self._mixture(features[fit], mean[fit])
            unlikely = mixture.negative_log_likelihood(normal.statistics.features[check])
            fit[data.measured :] = False
            if len(unlikely) < PLENTY and fit.sum() >= 2 * MIN_SAMPLE:
                unlikely = np.append(unlikely, self._cross_fitted(features[fit], mean[fit]))
            tables[allocation] = CalibratedMixture(mixture, fit_pareto_tail(unlikely))
        return replace(self, tables=tables)

    def surprise(self, observation: Observation, earlier: Mapping[str, Surprise]) -> Surprise:
        window = observation.over(self.length_s)
        features = window.statistics.features
        return lowest_surprise(
            self.tables, observation.allocation, window.known, lambda table, rows: table.surprise(features[rows])
        )

    def expected(self, observation: Observation, views: Mapping[str, View]) -> NDArray[np.float32]:
        """By the table that gives the lowest surprise."""
        window, allocation = observation.over(self.length_s), observation.allocation
        features = window.statistics.features
        out = np.full_like(window.statistics.mean, np.nan)
        for number in np.unique(allocation[window.known]).tolist():
            rows = np.flatnonzero(window.known & (allocation == number))
            tables = tables_for(self.tables, number)
            if tables:
                lowest = np.argmin([table.surprise(features[rows]) for table in tables], axis=0)
                expected = np.stack([table.mixture.expected_ratios(features[rows]) for table in tables])
                out[rows] = expected[lowest, np.arange(len(rows))]
        return out

    def arrays(self) -> Arrays:
        arrays: dict[str, NDArray[np.float32]] = {}
        for allocation, table in self.tables.items():
            name = f"{self._stored}/{allocation}"
            for each in fields(GaussianMixture):
                arrays[f"{name}/density/{each.name}"] = np.ascontiguousarray(getattr(table.mixture, each.name))
            arrays |= table.survival.arrays(f"{name}/tail")
        return arrays

    def restore(self, arrays: Arrays) -> DensityView:
        tables = {}
        for allocation in stored_groups(arrays, self._stored):
            name = f"{self._stored}/{allocation}"
            mixture = GaussianMixture(*(arrays[f"{name}/density/{each.name}"] for each in fields(GaussianMixture)))
            tables[allocation] = CalibratedMixture(mixture, SurvivalFunction.restore(arrays, f"{name}/tail"))
        return replace(self, tables=tables)

    @property
    def _stored(self) -> str:
        return f"habits/{self.length_s}"

    def _mixture(self, features: NDArray[np.float32], mean: NDArray[np.float32]) -> GaussianMixture:
        return fit_mixture(features, mean, self.settings.components, self.settings.seed)

    def _cross_fitted(self, features: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n,) the negative log-likelihood of each fold under a mixture of the other."""
        fold = np.arange(len(features)) * TURNS // len(features) % 2
        unlikely = np.empty(len(features))
        for number in (0, 1):
            others = fold != number
            mixture = self._mixture(features[others], mean[others])
            unlikely[fold == number] = mixture.negative_log_likelihood(features[fold == number])
        return unlikely
