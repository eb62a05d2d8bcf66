"""The small detector of the learning tests, for the month study too."""

from tests.telemetry.learning.conftest import make_detector

__all__ = ["make_detector"]
