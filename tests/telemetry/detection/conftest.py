"""One small detector for all tests of detection: two simulated nodes, trained and calibrated in a few seconds."""

from __future__ import annotations

import pytest
import torch
from tests.telemetry.moments.conftest import moment

from clustertwin.core.traces import Trace, Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.detection.detector import Detector, Settings, calibrate
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.model_store import Stored
from clustertwin.telemetry.models.training_data import normal_windows
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

__all__ = ["campaign", "detector", "moment", "stored"]


def campaign(seed: int, **settings: object) -> list[Trace]:
    return simulate(ClusterSettings(**{"nodes": 2, "threads": 16, "hours": 1.5} | settings), read_signatures(), seed)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def stored() -> Stored:
    """A model that knows the principal components of normal windows: as good as trained, for detection."""
    torch.manual_seed(0)
    windows = normal_windows(Windows.concat([cut(trace) for trace in campaign(1)]))
    config, network = find("linear")
    model = network(config(latent=8, hidden=16))
    model.prepare(torch.from_numpy(windows.values))
    return Stored("linear", model.eval())


@pytest.fixture(scope="session")
def detector(stored: Stored) -> Detector:
    learn = [moment for moment, _ in moments(campaign(1))]
    normal_moments = [moment for seed in (2, 3) for moment, _ in moments(campaign(seed))]
    return calibrate(stored, normal_moments, Settings(components=8), learn)
