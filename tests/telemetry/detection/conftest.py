"""One small detector for all tests of detection: two simulated nodes, trained and calibrated in a few seconds."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from tests.telemetry.moments.conftest import moment

from clustertwin.core.traces import Trace, Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector, DetectorSettings
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.models.training_data import normal_windows
from clustertwin.telemetry.moments.moment import Moment, moments
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

__all__ = ["campaign", "detector", "moment", "normal_moments", "stored"]


def campaign(seed: int, **settings: object) -> list[Trace]:
    return simulate(ClusterSettings(**{"nodes": 2, "threads": 16, "hours": 1.5} | settings), read_signatures(), seed)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def stored() -> StoredModel:
    """A model with the principal components of normal windows: for detection as good as a trained one."""
    torch.manual_seed(0)
    windows = normal_windows(Windows.concat([cut(trace) for trace in campaign(1)]))
    config, network = find("linear")
    model = network(config(latent=8, hidden=16))
    model.prepare(torch.from_numpy(windows.values))
    return StoredModel("linear", model.eval())


@cache
def normal_moments() -> tuple[list[Moment], list[Moment]]:
    """Moments to fit models of normal behaviour to, and moments to take p-values from."""
    learn = [moment for moment, _ in moments(campaign(1))]
    return learn, [moment for seed in (2, 3) for moment, _ in moments(campaign(seed))]


@pytest.fixture(scope="session")
def detector(stored: StoredModel) -> Detector:
    learn, held_out = normal_moments()
    return calibrate(stored, held_out, DetectorSettings(components=8), learn)
