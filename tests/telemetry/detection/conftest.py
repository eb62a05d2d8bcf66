"""One small detector for all tests of detection: two simulated nodes, trained and calibrated in a few seconds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Trace, Windows
from clustertwin.telemetry.campaign.simulation.cluster import simulate
from clustertwin.telemetry.campaign.simulation.demand import ClusterSettings
from clustertwin.telemetry.campaign.simulation.signature import read_signatures
from clustertwin.telemetry.detection.detector import Detector, Settings, calibrate
from clustertwin.telemetry.detection.moment import Moment, moments
from clustertwin.telemetry.gather import normal
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.store import Stored
from clustertwin.telemetry.windows import cut


def campaign(seed: int, **settings: object) -> list[Trace]:
    return simulate(ClusterSettings(**{"nodes": 2, "threads": 16, "hours": 1.5} | settings), read_signatures(), seed)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def stored() -> Stored:
    """A model that knows the principal components of normal windows: as good as trained, for detection."""
    torch.manual_seed(0)
    windows = normal(Windows.concat([cut(trace) for trace in campaign(1)]))
    config, network = find("linear")
    model = network(config(latent=8, hidden=16))
    model.prepare(torch.from_numpy(windows.values))
    return Stored("linear", model.eval())


@pytest.fixture(scope="session")
def detector(stored: Stored) -> Detector:
    learn = [moment for moment, _ in moments(campaign(1))]
    normal_moments = [moment for seed in (2, 3) for moment, _ in moments(campaign(seed))]
    return calibrate(stored, normal_moments, Settings(components=8), learn)


@pytest.fixture
def moment() -> Moment:
    """One node of eight threads; a job of four computes, the rest lies idle."""
    values = np.zeros((8, 300, 4), np.float32)
    values[:4, :, 0], values[4:, :, 3] = 1, 1
    job = np.array([0, 0, 0, 0, -1, -1, -1, -1], np.int32)
    return Moment(
        end_s=1_000,
        schema=CPU,
        values=values,
        valid=np.ones((8, 300), np.bool_),
        nodes=("n1",),
        node=np.zeros(8, np.int32),
        cpu=np.arange(8, dtype=np.int32),
        jobs=("7",),
        job=job,
        age_s=np.full(8, 900, np.int32),
    )
