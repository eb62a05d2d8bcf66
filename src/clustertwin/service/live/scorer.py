"""The port through which the loop scores: a detector and a moment -> scores; and its implementation in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from clustertwin.service.live.snapshot import EngineState
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:
    from clustertwin.telemetry.detection.detector import Detector


class Scorer(Protocol):
    def __call__(self, detector: Detector, moment: Moment) -> Scores:
        """The score of each thread; NaN if it was not available in time."""
        ...

    @property
    def state(self) -> EngineState: ...

    def close(self) -> None: ...


class InProcessScorer:
    """Scores in the loop's own thread."""

    state = EngineState("here")

    def __call__(self, detector: Detector, moment: Moment) -> Scores:
        return detector.score(moment)

    def close(self) -> None:
        pass
