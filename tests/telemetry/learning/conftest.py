"""Days of a small simulated cluster, a small detector and a small golden set, made once for all tests of the folder."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from functools import cache

import pytest
import torch

from clustertwin.core.traces import Trace
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector, DetectorSettings
from clustertwin.telemetry.learning.champions import champion_store, version_store
from clustertwin.telemetry.learning.duel import golden_set
from clustertwin.telemetry.learning.night.calendar_day import Day, DayLimits, day_of
from clustertwin.telemetry.learning.night.challengers import ChallengerTraining
from clustertwin.telemetry.learning.night.day_sampling import SamplingSettings
from clustertwin.telemetry.learning.night.night_run import NightContext, NightSettings
from clustertwin.telemetry.learning.night.verdicts import FixedVerdicts
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.model_store import read, save
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.recording.trace_archive import MemoryArchive
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

torch.set_num_threads(1)

SMALL = ClusterSettings(nodes=2, threads=16, hours=2.0, job_types=("np", "good-io"), job_s=(900.0, 1800.0), gap_s=10.0)
#: One small challenger per night: these tests are about the cycle, not about the model.
QUICK = NightSettings(
    architectures=("linear",),
    starts=("scratch",),
    workers=1,
    sampling=SamplingSettings(moments=50, windows=0),
    replay_moments=1,
    replay_days=2,
    training=ChallengerTraining(epochs=1, warm_epochs=1, windows=200),
    alarms=DetectorSettings(components=2),
    limits=DayLimits(thread_hours=1.0, fewest_moments=2),
)


@cache
def small_day(number: int) -> tuple[Day, list[Trace]]:
    """The first two hours of a day of January 2026 (UTC)."""
    day = day_of(f"2026-01-{number:02d}", UTC)
    return day, simulate(replace(SMALL, start_s=day.start_s), read_signatures(), number)


@pytest.fixture(scope="session")
def make_detector(tmp_path_factory):
    """seed -> a detector with random weights, calibrated on normal data: valid, and different for each seed."""

    @cache
    def make(seed: int) -> Detector:
        torch.manual_seed(seed)
        config, network = find("linear")
        directory = tmp_path_factory.mktemp("model")
        save(directory, "linear", network(config(hidden=8, latent=4)))
        normal = [moment for moment, _ in moments(small_day(1)[1], every_s=200)]
        return calibrate(read(directory), normal, DetectorSettings(components=2))

    return make


@pytest.fixture(scope="session")
def small_golden():
    settings = replace(SMALL, anomalies=("bad-io", "hung-job"), anomaly_ratio=0.6, start_s=0)
    return golden_set.labelled_golden_set(simulate(settings, read_signatures(), 1))


@pytest.fixture
def make_context(tmp_path, make_detector, small_golden):
    """A home whose champion has random weights: every challenger is better."""

    def make(number: int = 2, verdicts=(), home=None, **changes) -> tuple[NightContext, Day]:
        home = home or tmp_path
        if champion_store.read_champion(home) is None:
            version = version_store.add_version(home, make_detector(0), {})
            champion_store.promote(home, version, 0, "first", 0.0)
        day, traces = small_day(number)
        context = NightContext(
            home,
            MemoryArchive(traces),
            FixedVerdicts(verdicts),
            QUICK,
            golden=lambda: small_golden,
            clock=lambda: 1000.0,
        )
        return replace(context, **changes), day

    return make
