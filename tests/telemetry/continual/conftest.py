"""A small cluster's days and a small detector, made once for all tests of the room."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from clustertwin.core.traces import Trace
from clustertwin.telemetry.campaign.simulation.cluster import simulate
from clustertwin.telemetry.campaign.simulation.demand import ClusterSettings
from clustertwin.telemetry.campaign.simulation.signature import read_signatures
from clustertwin.telemetry.detection.detector import Detector, calibrate
from clustertwin.telemetry.detection.moment import moments
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.store import Stored, read, save

torch.set_num_threads(1)

SMALL = ClusterSettings(
    nodes=2, threads=8, hours=1.0, job_types=("np", "good-io", "mpi-4"), job_s=(600.0, 1800.0), gap_s=10.0
)


@cache
def small_day(seed: int, start_s: int = SMALL.start_s) -> list[Trace]:
    return simulate(replace(SMALL, start_s=start_s), read_signatures(), seed)


@pytest.fixture(scope="session")
def make_detector(tmp_path_factory):
    """seed -> a detector of random weights, calibrated on a normal hour: quick, valid, and different for each seed."""

    @cache
    def make(seed: int) -> Detector:
        torch.manual_seed(seed)
        config, network = find("linear")
        directory = tmp_path_factory.mktemp("model")
        save(directory, "linear", network(config(hidden=8, latent=4)))
        stored: Stored = read(directory)
        return calibrate(stored, [moment for moment, _ in moments(small_day(0))])

    return make
