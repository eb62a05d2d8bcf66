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
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.core.traces import Windows
from clustertwin.engine import Engine, each
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.contract import Autoencoder, Shape
from clustertwin.telemetry.models.training import TrainingSettings, fit, settings_for_length
from clustertwin.telemetry.studies.reference.directions import job_directions
from clustertwin.telemetry.studies.reference.embedding_quality import BAD, drawn_rows, embed, labels, silhouette
from clustertwin.telemetry.studies.reference.study_data import Data, recorded, simulated, transferred
from clustertwin.telemetry.studies.window_metrics import roc_auc

Learn = Literal["recordings", "simulated"]  # what models learn from, where there are recordings


@dataclass(frozen=True, slots=True)
class Source:
    """Where a study's data come from: recordings below `roots`, or a simulated cluster where there are none."""

    roots: tuple[str, ...] = ()
    learn: Learn = "recordings"
    length_s: int = 100
    stride_s: int = 100
    nodes: int = 5
    threads: int = 32
    hours: float = 3.0
    test_hours: float = 3.0
    tests: int = 1
    seed: int = 1

    @property
    def name(self) -> str:
        """For a report: no paths."""
        cluster = f"a simulated cluster of {self.nodes} × {self.threads} threads, seed {self.seed}"
        recordings = ", ".join(Path(root).name for root in self.roots)
        if not recordings:
            return cluster
        return f"{recordings}; models learnt from {cluster}" if self.learn == "simulated" else recordings


@lru_cache(maxsize=2)
def load(source: Source) -> Data:
    """The data, made once in each process."""
    roots = [Path(root) for root in source.roots]
    if roots and source.learn == "recordings":
        return recorded(roots, source.length_s, source.stride_s)
    tests = 0 if roots else source.tests
    cluster = simulated(source.nodes, source.threads, source.hours, source.test_hours, tests, source.seed)
    return transferred(roots, cluster, source.length_s, source.stride_s) if roots else cluster


LOOKED_AT = 4000  # validation windows after each epoch
LEARNT_FROM = 16_000  # windows, in an epoch of a recipe

#: How each architecture is trained here, on some 16,000 windows: more epochs lower the error by a few per cent only.
RECIPES: dict[str, TrainingSettings] = {
    "linear": TrainingSettings(model="linear", epochs=16, rate=1e-3),
    "patch": TrainingSettings(model="patch", epochs=4),
    "patch, contrast": TrainingSettings(model="patch", options={"steps": 10.0}, epochs=4, contrast=0.1),
    "vae": TrainingSettings(model="vae", epochs=4),
    "ae": TrainingSettings(model="ae", epochs=1),
    "node-gnn-ae": TrainingSettings(model="node-gnn-ae", epochs=1),
    "job-gnn-ae": TrainingSettings(model="job-gnn-ae", epochs=1),
}


@dataclass(frozen=True, slots=True)
class Member:
    """One model to train."""

    recipe: str
    settings: TrainingSettings
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
    by_jobs: float  # … in the directions that tell jobs apart
    by_kind: dict[str, float]  # error of each kind of job
    auc: dict[str, float]  # of the error, for each anomaly against all normal windows
    cpu_s: float  # of training and judging
    settings: TrainingSettings
    weights: dict[str, NDArray[Any]]

    def model(self, shape: Shape) -> Autoencoder:
        """The fitted model again."""
        config, network = find(self.settings.model)
        model = network(config(shape=shape, **self.settings.options))
        model.load_state_dict({key: torch.from_numpy(value) for key, value in self.weights.items()})
        return model.eval()


def passes(epochs: int, windows: int) -> int:
    """How often to go over so many windows: a small campaign up to eight times as often as a recipe says.

    >>> passes(4, 16_000), passes(4, 4_000), passes(4, 10)
    (4, 16, 32)
    """
    return min(max(round(epochs * LEARNT_FROM / max(windows, 1)), epochs), 8 * epochs)


def members(
    source: Source, recipes: Sequence[str], size: int, epochs: int = 0, windows: int = LEARNT_FROM
) -> list[Member]:
    """`size` of each recipe, seeds 0, 1, …, for so many training windows; `epochs` overrules every recipe."""

    def settings(name: str, seed: int) -> TrainingSettings:
        recipe = settings_for_length(RECIPES[name], source.length_s)
        return replace(recipe, seed=seed, epochs=epochs or passes(recipe.epochs, windows))

    return [Member(name, settings(name, seed), source) for name in recipes for seed in range(size)]


def train_all(
    wanted: Sequence[Member],
    engine: Engine = "here",
    workers: int | None = None,
    done: Callable[[int, Judged], None] = lambda index, judged: None,
) -> list[Judged]:
    """Every member, side by side."""
    return each(train_one, wanted, engine, workers, done)


def _some(windows: Windows) -> Windows:
    """Windows of a few times, some thousands at most: enough to choose an epoch by. What is seen together stays so."""
    times_s = np.unique(windows.start_s)
    return windows.take(np.isin(windows.start_s, times_s[:: max(len(windows) // LOOKED_AT, 1)]))


def train_one(member: Member) -> Judged:
    """Fit on the normal training windows, judge on the test campaigns."""
    torch.set_num_threads(1)  # sums over several threads end in another last bit
    data = load(member.source)
    began_s = time.process_time()
    validation = _some(data.normal("validation"))
    model = fit(data.normal("train"), validation, member.settings).model
    directions = job_directions(embed(model, validation)[0], validation)
    test = data.windows("test")
    z, error = embed(model, test)  # all of them: a graph model is judged in the company it will have
    label, healthy = labels(test), test.anomaly == ""
    few = drawn_rows(test, np.random.default_rng(0))
    anomalies = sorted(set(test.anomaly.tolist()) - {""})
    return Judged(
        member.recipe,
        member.settings.seed,
        model.config.latent,
        float(error[healthy].mean()),
        float(error[label == BAD].mean()) if (label == BAD).any() else float("nan"),
        silhouette(z[few], label[few]),
        silhouette(z[few] @ directions, label[few]),
        {kind: float(error[label == kind].mean()) for kind in sorted(set(label.tolist()) - {""})},
        {anomaly: roc_auc(error[healthy], error[test.anomaly == anomaly]) for anomaly in anomalies},
        time.process_time() - began_s,
        member.settings,
        {key: value.numpy() for key, value in model.state_dict().items()},
    )
