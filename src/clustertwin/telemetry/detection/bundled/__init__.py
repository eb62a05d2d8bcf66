"""The champion that ships with clustertwin, so that a new machine is watched from its first minute."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from clustertwin.telemetry.detection.detector_store import read
from clustertwin.telemetry.detection.views.all_views import Detector


@cache
def bundled() -> Detector:
    """The detector of this directory; MODEL_CARD.md says what it was made from and what it cannot do."""
    return read(Path(__file__).parent)
