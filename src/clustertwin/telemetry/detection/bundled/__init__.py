"""The detector that ships with clustertwin, so that a new machine is monitored from its first minute."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.detector_store import read


@cache
def bundled() -> Detector:
    """The detector of this directory. MODEL_CARD.md describes its training data and its limits."""
    return read(Path(__file__).parent)
