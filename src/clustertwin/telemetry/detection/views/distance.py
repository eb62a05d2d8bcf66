"""The distance view: is the thread closer to a known fault in the embedding than normal threads are?

This is the reference study's alarm by distance: a job that drifts towards the embedding of bad I/O has a problem,
however slowly it drifts. A fault whose region lies among normal threads only counts for threads that are even closer
to it than those. This view can name the fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.telemetry.detection.features.landmarks import find_landmarks
from clustertwin.telemetry.detection.features.observation import ALLOCATIONS, Observation
from clustertwin.telemetry.detection.views.contract import (
    Arrays,
    CalibrationData,
    ClosestFault,
    DetectorSettings,
    Surprise,
    View,
)
from clustertwin.telemetry.detection.views.group_tables import lowest_surprise, stored_groups, tables_for
from clustertwin.telemetry.detection.views.p_value import MIN_SAMPLE, SurvivalFunction, fit_pareto_tail
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.moments.moment import WINDOW_S
from clustertwin.telemetry.simulation.signature import read_signatures

EXPECTED_BY = "density"  # the view whose expectation this one uses
_REGIONS, _CALIBRATION = "regions", "clearance"
_MIN_DISTANCE = 1e-6  # the logarithm of a distance must be finite

Distances = NDArray[np.float32]  # (n, region)


@dataclass(frozen=True, slots=True)
class FaultRegions:
    """The centres of known faults in a model's embedding."""

    names: tuple[str, ...]
    centre: NDArray[np.float32]  # (region, latent)

    def distances(self, embedding: NDArray[np.float32]) -> Distances:
        """(n, latent) -> (n, region)"""
        squares = np.einsum("nl,nl->n", embedding, embedding)[:, None] + (self.centre**2).sum(1)
        return np.sqrt(np.maximum(squares - 2 * embedding @ self.centre.T, _MIN_DISTANCE**2))


NO_REGIONS = FaultRegions((), np.zeros((0, 0), np.float32))


@dataclass(frozen=True, slots=True)
class NormalDistances:
    """The distances of normal threads of one allocation from each region."""

    quantile: NDArray[np.float32]  # (region,) a low quantile of the distances
    survival: SurvivalFunction  # of the proximity to the closest region

    def surprise(self, distances: Distances) -> Surprise:
        """(n,) -log10 of the share of normal threads that are as close to any region."""
        return self.survival.surprise(proximity(distances, self.quantile).max(1))


def proximity(distances: Distances, quantile: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n, region) log of the quantile over the distance: above 0 where a thread is closer than the quantile."""
    return np.log(quantile.astype(np.float64)) - np.log(distances)


def fit_distances(distances: Distances, rate: float) -> NormalDistances:
    """Fit to the distances of normal threads; `rate` of them are closer than the quantile."""
    quantile = np.quantile(distances, rate, axis=0).astype(np.float32)
    return NormalDistances(quantile, fit_pareto_tail(proximity(distances, quantile).max(1)))


@dataclass(frozen=True, slots=True)
class DistanceView(View):
    settings: DetectorSettings
    regions: FaultRegions = NO_REGIONS
    tables: Mapping[int, NormalDistances] = field(default_factory=dict)  # by allocation

    @property
    def length_s(self) -> int:
        return WINDOW_S

    def fit(self, data: CalibrationData) -> DistanceView:
        normal = data.held_out
        regions = find_regions(normal.stored)
        if not regions.names:
            return self
        tables = {}
        for allocation in ALLOCATIONS:
            rows = np.flatnonzero(normal.over(WINDOW_S).known & (normal.allocation == allocation))
            if len(rows) >= MIN_SAMPLE:
                distances = regions.distances(normal.embedding[rows])
                tables[allocation] = fit_distances(distances, self.settings.false_alarm_rate)
        return replace(self, regions=regions, tables=tables)

    def surprise(self, observation: Observation, earlier: Mapping[str, Surprise]) -> Surprise:
        return lowest_surprise(
            self.tables,
            observation.allocation,
            observation.over(WINDOW_S).known,
            lambda table, rows: table.surprise(self.regions.distances(observation.embedding[rows])),
        )

    def expected(self, observation: Observation, views: Mapping[str, View]) -> NDArray[np.float32]:
        if EXPECTED_BY in views:
            return views[EXPECTED_BY].expected(observation, views)
        return np.full_like(observation.over(WINDOW_S).statistics.mean, np.nan)

    def arrays(self) -> Arrays:
        names, centres = self.regions.names, self.regions.centre
        arrays = {f"{_REGIONS}/{name}": centre for name, centre in zip(names, centres, strict=True)}
        for allocation, table in self.tables.items():
            arrays[f"{_CALIBRATION}/{allocation}/kept"] = table.quantile
            arrays |= table.survival.arrays(f"{_CALIBRATION}/{allocation}")
        return arrays

    def restore(self, arrays: Arrays) -> DistanceView:
        names = tuple(sorted(key.removeprefix(f"{_REGIONS}/") for key in arrays if key.startswith(f"{_REGIONS}/")))
        if not names:
            return self
        regions = FaultRegions(names, np.stack([arrays[f"{_REGIONS}/{name}"] for name in names]))
        tables = {
            allocation: NormalDistances(
                arrays[f"{_CALIBRATION}/{allocation}/kept"],
                SurvivalFunction.restore(arrays, f"{_CALIBRATION}/{allocation}"),
            )
            for allocation in stored_groups(arrays, _CALIBRATION)
        }
        return replace(self, regions=regions, tables=tables)

    def closest_fault(self, embedding: NDArray[np.float32], allocation: NDArray[np.int8]) -> ClosestFault | None:
        if not self.regions.names:
            return None
        faults = []
        for number in np.unique(allocation).tolist():
            distances = self.regions.distances(embedding[allocation == number])
            if tables := tables_for(self.tables, number):
                faults.append(closest(self.regions.names, distances, tables, 1 - self.settings.false_alarm_rate))
        return max(faults, key=lambda fault: fault.normal_distance / fault.distance, default=None)


def find_regions(stored: StoredModel) -> FaultRegions:
    """The regions of recorded faults; none for a model of channels that were not recorded."""
    if stored.model.config.shape.schema != CPU:
        return NO_REGIONS
    landmarks = find_landmarks(stored, read_signatures())
    rows = sorted(np.flatnonzero(landmarks.faulty).tolist(), key=lambda row: landmarks.names[row])
    return FaultRegions(tuple(landmarks.names[row] for row in rows), landmarks.centre[rows])


def closest(
    names: Sequence[str], distances: Distances, tables: Sequence[NormalDistances], farther_ratio: float
) -> ClosestFault:
    """(n, region) distances of some threads -> the region that one of them is closest to, by the lowest quantiles."""
    quantile = np.min([table.quantile for table in tables], axis=0)
    thread, region = divmod(int(proximity(distances, quantile).argmax()), len(names))
    return ClosestFault(names[region], float(distances[thread, region]), float(quantile[region]), farther_ratio)
