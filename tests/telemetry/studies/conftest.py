"""The small detector of the detection tests, for the studies too."""

from tests.telemetry.detection.conftest import detector, stored

__all__ = ["detector", "stored"]
