"""The port between the loop and whoever scores for it: a detector and a moment -> scores; and scoring right here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from clustertwin.service.live.snapshot import EngineState
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:
    from clustertwin.telemetry.detection.detector import Detector


class Scorer(Protocol):
    def __call__(self, detector: Detector, moment: Moment) -> Scores:
        """The scores of every thread; NaN where they could not be had in time."""
        ...

    @property
    def state(self) -> EngineState: ...

    def close(self) -> None: ...


class Here:
    """In the loop's own thread."""

    state = EngineState("here")

    def __call__(self, detector: Detector, moment: Moment) -> Scores:
        return detector.score(moment)

    def close(self) -> None:
        pass
