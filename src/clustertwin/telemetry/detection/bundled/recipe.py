"""Make the bundled detector: seed -> a detector of simulated campaigns, and of synthetic threads without known jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from clustertwin.core.traces import Trace, Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.detection.bundled.synthetic_threads import synthetic_node
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector, DetectorSettings
from clustertwin.telemetry.models import DEFAULT
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.models.training import TrainingSettings, fit
from clustertwin.telemetry.models.training_data import normal_windows
from clustertwin.telemetry.moments.moment import Moment, moments
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


@dataclass(frozen=True, slots=True)
class Recipe:
    """The amount of each kind of data. The same recipe gives the same detector."""

    hours: float = 4.0  # of each of three simulated campaigns of 5 × 32 threads: one to train on, two to calibrate on
    nodes: int = 24  # of synthetic threads, half of them to train on
    threads: int = 32
    seconds: int = 1500
    epochs: int = 12
    seed: int = 0


def make(recipe: Recipe = Recipe(), report: Callable[[str], None] = lambda line: None) -> Detector:
    """Simulate, train and calibrate."""
    seeds = [int(seed) for seed in np.random.SeedSequence(recipe.seed).generate_state(4)]
    campaigns = [simulate(ClusterSettings(hours=recipe.hours), read_signatures(), seed) for seed in seeds[:3]]
    rng = np.random.default_rng(seeds[3])
    synthetic = [synthetic_node(recipe.threads, recipe.seconds, rng) for _ in range(recipe.nodes)]
    learn = [campaigns[0], *([trace] for trace in synthetic[::2])]
    check = [*campaigns[1:], *([trace] for trace in synthetic[1::2])]
    report(f"{len(campaigns)} simulated campaigns and {len(synthetic)} synthetic nodes")
    fitted = fit(
        _windows(learn), _windows(check[:1] + check[2:]), TrainingSettings(model=DEFAULT, epochs=recipe.epochs)
    )
    report(f"model trained: validation error {fitted.validation:.5f}")
    stored = StoredModel(DEFAULT, fitted.model, {"validation_error": fitted.validation})
    return calibrate(stored, _moments(check), DetectorSettings(), _moments(learn))


def _windows(clusters: list[list[Trace]]) -> Windows:
    return normal_windows(Windows.concat([cut(trace) for traces in clusters for trace in traces]))


def _moments(clusters: list[list[Trace]]) -> Iterator[Moment]:
    return (moment for traces in clusters for moment, _ in moments(traces))
