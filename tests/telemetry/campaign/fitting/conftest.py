"""The small signatures of the simulation tests, for fitting too."""

from tests.telemetry.simulation.conftest import signatures

__all__ = ["signatures"]
