"""Several models of each architecture: a source of data and settings -> each fitted and judged, here or on Ray.

What a worker is handed is the recipe of the data, not the data: it reads or simulates them itself, once, and the
results are the same wherever it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.engine import Engine, each
from clustertwin.telemetry.detection.assessment import roc_auc
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.contract import Autoencoder, Shape
from clustertwin.telemetry.study.data import Data, recorded, simulated
from clustertwin.telemetry.study.embedding import BAD, drawn, embed, labels
from clustertwin.telemetry.training import Settings, fit, suited


@dataclass(frozen=True, slots=True)
class Source:
    """Where a study's data come from: recordings below `roots`, or a simulated cluster where there are none."""

    roots: tuple[str, ...] = ()
    length_s: int = 100
    nodes: int = 5
    threads: int = 32
    hours: float = 3.0
    test_hours: float = 3.0
    tests: int = 1
    seed: int = 1


@lru_cache(maxsize=2)
def load(source: Source) -> Data:
    """The data, made once in each process."""
    if source.roots:
        return recorded([Path(root) for root in source.roots], source.length_s)
    return simulated(source.nodes, source.threads, source.hours, source.test_hours, source.tests, source.seed)


#: How each architecture is trained here: enough to level off on some 16,000 windows, on one core in half a minute.
RECIPES: dict[str, Settings] = {
    "linear": Settings(model="linear", epochs=16),
    "linear, contrast": Settings(model="linear", epochs=16, contrast=1e-3),
    "patch": Settings(model="patch", epochs=8),
    "vae": Settings(model="vae", epochs=8),
    "ae": Settings(model="ae", epochs=4),
    "node-gnn-ae": Settings(model="node-gnn-ae", epochs=4),
    "job-gnn-ae": Settings(model="job-gnn-ae", epochs=4),
}


@dataclass(frozen=True, slots=True)
class Member:
    """One model to train."""

    recipe: str
    settings: Settings
    source: Source


@dataclass(frozen=True, slots=True)
class Judged:
    """One model, trained, and how it does on the test campaigns."""

    recipe: str
    seed: int
    latent: int
    normal: float  # mean squared error over channels and seconds, normal windows
    anomalous: float  # … of bad I/O; NaN where there is none
    silhouette: float
    by_kind: dict[str, float]  # error of each kind of job
    auc: dict[str, float]  # of the error, for each anomaly against all normal windows
    cpu_s: float  # of training
    settings: Settings
    weights: dict[str, NDArray[Any]]

    def model(self, shape: Shape) -> Autoencoder:
        """The fitted model again."""
        config, network = find(self.settings.model)
        model = network(config(shape=shape, **self.settings.options))
        model.load_state_dict({key: torch.from_numpy(value) for key, value in self.weights.items()})
        return model.eval()


def members(source: Source, recipes: Sequence[str], size: int, epochs: int = 0) -> list[Member]:
    """`size` of each recipe, seeds 0, 1, …; `epochs` shortens them all."""

    def settings(name: str, seed: int) -> Settings:
        recipe = suited(RECIPES[name], source.length_s)
        return replace(recipe, seed=seed, epochs=epochs or recipe.epochs)

    return [Member(name, settings(name, seed), source) for name in recipes for seed in range(size)]


def train_all(
    wanted: Sequence[Member],
    engine: Engine = "here",
    workers: int | None = None,
    done: Callable[[int, Judged], None] = lambda index, judged: None,
) -> list[Judged]:
    """Every member, side by side."""
    return each(train_one, wanted, engine, workers, done)


def train_one(member: Member) -> Judged:
    """Fit on the normal training windows, judge on the test campaigns."""
    torch.set_num_threads(1)  # sums over several threads end in another last bit
    data = load(member.source)
    train, validation = data.normal("train"), data.normal("validation")
    began_s = time.process_time()
    model = fit(train, validation, member.settings).model
    cpu_s = time.process_time() - began_s
    test = data.windows("test")
    _, error = embed(model, test)
    label, healthy = labels(test), test.anomaly == ""
    few = drawn(test, np.random.default_rng(0))
    silhouette = require("sklearn.metrics", "models").silhouette_score
    anomalies = sorted(set(test.anomaly.tolist()) - {""})
    return Judged(
        member.recipe,
        member.settings.seed,
        model.config.latent,
        float(error[healthy].mean()),
        float(error[label == BAD].mean()) if (label == BAD).any() else float("nan"),
        float(silhouette(embed(model, few)[0], labels(few))),
        {kind: float(error[label == kind].mean()) for kind in sorted(set(label.tolist()) - {""})},
        {anomaly: roc_auc(error[healthy], error[test.anomaly == anomaly]) for anomaly in anomalies},
        cpu_s,
        member.settings,
        {key: value.numpy() for key, value in model.state_dict().items()},
    )
