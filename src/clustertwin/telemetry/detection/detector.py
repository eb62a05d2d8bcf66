"""The front door of detection: calibrate a detector on normal data, score moments, save it and read it back.

detector = calibrate(stored, (moment for moment, _ in moments(normal_traces)))
scores = detector.score(moment)
alarming = scores.score > detector.threshold
"""

from __future__ import annotations

from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector_store import read, save
from clustertwin.telemetry.detection.views.all_views import VIEWS, Detector, Settings

__all__ = ["VIEWS", "Detector", "Settings", "calibrate", "read", "save"]
