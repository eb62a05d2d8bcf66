"""The detector: an autoencoder, its views and their combination; moment -> `Scores`.

detector = calibrate(stored, (moment for moment, _ in moments(normal_traces)))
scores = detector.score(moment)
alarming = scores.score > detector.threshold
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.features.observation import Observation, allocation_of, observe
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.detection.views.combination import Combination
from clustertwin.telemetry.detection.views.contract import ClosestFault, DetectorSettings, Surprise, View
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.moments.moment import Moment

__all__ = ["Detector", "DetectorSettings", "surprise_of"]


@dataclass(frozen=True, slots=True)
class Detector:
    """Score a moment. Normal threads exceed `threshold` at the stated false-alarm rate."""

    stored: StoredModel
    settings: DetectorSettings
    fitted: Mapping[str, View]  # in the order of the table of views
    combination: Combination
    sha256: str = ""  # of the weights, the tables and the settings

    @property
    def version(self) -> str:
        return f"{self.stored.name}-{self.sha256[:12]}"

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(self.fitted)

    @property
    def schema(self) -> Schema:
        """The channels that the detector takes from a moment."""
        schema: Schema = self.stored.model.config.shape.schema
        return schema

    @property
    def threshold(self) -> float:
        return -float(np.log10(self.settings.false_alarm_rate))

    def length_s(self, view: str) -> int:
        """The seconds that a view looks at."""
        return self._view(view).length_s

    def score(self, moment: Moment) -> Scores:
        """The scores of every thread. Channels of the moment that the detector does not know are ignored."""
        observation = observe(self.stored, moment, self.settings.enough)
        surprise = surprise_of(self.fitted, observation)
        score = self.combination.score(observation, surprise)
        return Scores(score, surprise.astype(np.float32), self.views, observation.error, observation.embedding)

    def expected(self, moment: Moment, threads: NDArray[np.intp], view: str) -> NDArray[np.float32]:
        """(n, channel of the moment) the mean ratios that a view expects of these threads; NaN: unknown."""
        known_view = self._view(view)
        group, rows = moment.with_peers(threads)
        expected = known_view.expected(observe(self.stored, group, self.settings.enough), self.fitted)[rows]
        out = np.full((len(threads), len(moment.schema)), np.nan, np.float32)
        out[:, [moment.schema.index(name) for name in self.schema.names]] = expected
        return out

    def closest_fault(
        self, moment: Moment, scores: Scores, threads: NDArray[np.intp], view: str
    ) -> ClosestFault | None:
        """The known fault that these threads are closest to, by a view that knows faults; otherwise None."""
        return self._view(view).closest_fault(scores.embedding[threads], allocation_of(moment)[threads])

    def _view(self, name: str) -> View:
        if name not in self.fitted:
            raise SettingsError(f"this detector has no view {name!r}; its views are {', '.join(self.fitted)}")
        return self.fitted[name]


def surprise_of(views: Mapping[str, View], observation: Observation) -> NDArray[np.float64]:
    """(thread, view)"""
    columns: dict[str, Surprise] = {}
    for name, view in views.items():
        columns[name] = view.surprise(observation, columns)
    return np.stack(list(columns.values()), axis=1) if columns else np.empty((len(observation), 0))
