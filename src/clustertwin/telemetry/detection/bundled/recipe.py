"""Make the detector that ships: seed -> a detector that knows simulated campaigns, and threads of unknown jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from clustertwin.core.traces import Trace, Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.detection.bundled.synthetic_threads import invent
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.views.all_views import Detector, Settings
from clustertwin.telemetry.models import DEFAULT
from clustertwin.telemetry.models.model_store import Stored
from clustertwin.telemetry.models.training import TrainingSettings, fit
from clustertwin.telemetry.models.training_data import normal_windows
from clustertwin.telemetry.moments.moment import Moment, moments
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


@dataclass(frozen=True, slots=True)
class Recipe:
    """How much of everything. The same recipe gives the same detector."""

    hours: float = 4.0  # of a simulated campaign of 5 × 32 threads, once to learn from and twice to calibrate on
    nodes: int = 24  # of invented threads, half of them to learn from
    threads: int = 32
    seconds: int = 1500
    epochs: int = 12
    seed: int = 0


def make(recipe: Recipe = Recipe(), say: Callable[[str], None] = lambda line: None) -> Detector:
    """Simulate, invent, train, calibrate."""
    seeds = [int(seed) for seed in np.random.SeedSequence(recipe.seed).generate_state(4)]
    campaigns = [simulate(ClusterSettings(hours=recipe.hours), read_signatures(), seed) for seed in seeds[:3]]
    rng = np.random.default_rng(seeds[3])
    inventions = [invent(recipe.threads, recipe.seconds, rng) for _ in range(recipe.nodes)]
    learn = [campaigns[0], *([trace] for trace in inventions[::2])]
    check = [*campaigns[1:], *([trace] for trace in inventions[1::2])]
    say(f"{len(campaigns)} campaigns and {len(inventions)} invented nodes")
    training = TrainingSettings(model=DEFAULT, epochs=recipe.epochs)
    fitted = fit(_windows(learn), _windows(check[:1] + check[2:]), training)
    say(f"model trained: validation error {fitted.validation:.5f}")
    stored = Stored(DEFAULT, fitted.model, {"validation_error": fitted.validation})
    return calibrate(stored, _moments(check), Settings(), _moments(learn))


def _windows(clusters: list[list[Trace]]) -> Windows:
    return normal_windows(Windows.concat([cut(trace) for traces in clusters for trace in traces]))


def _moments(clusters: list[list[Trace]]) -> Iterator[Moment]:
    return (moment for traces in clusters for moment, _ in moments(traces))
