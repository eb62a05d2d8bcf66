"""Ensembles of models: data source and settings -> trained and evaluated models, on this machine or on Ray.

A worker receives the description of the data and not the data. It reads or simulates them once, and the results do not
depend on where it runs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.core.traces import Windows
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.contract import Autoencoder, Shape
from clustertwin.telemetry.models.training import TrainingSettings, fit, settings_for_length
from clustertwin.telemetry.studies.reference.embedding_quality import (
    BAD_IO,
    balanced_sample,
    embed,
    kind_labels,
    silhouette,
)
from clustertwin.telemetry.studies.reference.fisher_discriminant import discriminant_directions
from clustertwin.telemetry.studies.reference.study_data import (
    StudyData,
    recorded_data,
    simulated_data,
    transfer_data,
)
from clustertwin.telemetry.studies.window_metrics import roc_auc

Learn = Literal["recordings", "simulated"]  # training data, if there are recordings


@dataclass(frozen=True, slots=True)
class StudySource:
    """The description of a study's data: recordings below `roots`, or a simulated cluster if `roots` is empty."""

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
        """A description for reports, without paths."""
        cluster = f"a simulated cluster of {self.nodes} × {self.threads} threads, seed {self.seed}"
        recordings = ", ".join(Path(root).name for root in self.roots)
        if not recordings:
            return cluster
        return f"{recordings}; models trained on {cluster}" if self.learn == "simulated" else recordings


@lru_cache(maxsize=2)
def load(source: StudySource) -> StudyData:
    """The data, read or simulated once in each process."""
    roots = [Path(root) for root in source.roots]
    if roots and source.learn == "recordings":
        return recorded_data(roots, source.length_s, source.stride_s)
    tests = 0 if roots else source.tests
    cluster = simulated_data(source.nodes, source.threads, source.hours, source.test_hours, tests, source.seed)
    return transfer_data(roots, cluster, source.length_s, source.stride_s) if roots else cluster


VALIDATION_WINDOWS = 4000  # after each epoch, about
RECIPE_WINDOWS = 16_000  # training windows for which the recipes' epochs are chosen

#: How each architecture is trained. With about 16,000 windows, more epochs lower the error by only a few per cent.
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
class EnsembleMember:
    """One model to train."""

    recipe: str
    settings: TrainingSettings
    source: StudySource


@dataclass(frozen=True, slots=True)
class EvaluatedMember:
    """One trained model and its results on the test campaigns. Study caches store these fields under these names."""

    recipe: str
    seed: int
    latent: int
    normal: float  # mean reconstruction error of normal windows
    anomalous: float  # mean reconstruction error of bad I/O; NaN if there is none
    silhouette: float
    by_jobs: float  # silhouette in the discriminant directions of jobs
    by_kind: dict[str, float]  # mean reconstruction error of each kind of job
    auc: dict[str, float]  # ROC-AUC of the error, for each anomaly against all normal windows
    cpu_s: float  # for training and evaluation
    settings: TrainingSettings
    weights: dict[str, NDArray[Any]]

    def model(self, shape: Shape) -> Autoencoder:
        """The trained model."""
        config, network = find(self.settings.model)
        model = network(config(shape=shape, **self.settings.options))
        model.load_state_dict({key: torch.from_numpy(value) for key, value in self.weights.items()})
        return model.eval()


def scaled_epochs(epochs: int, windows: int) -> int:
    """The number of epochs for fewer training windows than a recipe assumes: more, but at most eight times as many.

    >>> scaled_epochs(4, 16_000), scaled_epochs(4, 4_000), scaled_epochs(4, 10)
    (4, 16, 32)
    """
    return min(max(round(epochs * RECIPE_WINDOWS / max(windows, 1)), epochs), 8 * epochs)


def members(
    source: StudySource, recipes: Sequence[str], size: int, epochs: int = 0, windows: int = RECIPE_WINDOWS
) -> list[EnsembleMember]:
    """`size` members of each recipe with the seeds 0, 1, …; `epochs`, if not 0, overrides that of the recipes."""

    def settings(name: str, seed: int) -> TrainingSettings:
        recipe = settings_for_length(RECIPES[name], source.length_s)
        return replace(recipe, seed=seed, epochs=epochs or scaled_epochs(recipe.epochs, windows))

    return [EnsembleMember(name, settings(name, seed), source) for name in recipes for seed in range(size)]


def _thin(windows: Windows) -> Windows:
    """The windows of some start times, a few thousand at most, which are enough to choose an epoch.

    All windows of a start time are kept, so that the graphs stay complete.
    """
    times_s = np.unique(windows.start_s)
    return windows.take(np.isin(windows.start_s, times_s[:: max(len(windows) // VALIDATION_WINDOWS, 1)]))


def train_one(member: EnsembleMember) -> EvaluatedMember:
    """Train on the normal training windows and evaluate on the test campaigns."""
    torch.set_num_threads(1)  # sums over several threads can differ in the last bit
    data = load(member.source)
    began_s = time.process_time()
    validation = _thin(data.normal("validation"))
    model = fit(data.normal("train"), validation, member.settings).model
    directions = discriminant_directions(embed(model, validation)[0], validation)
    test = data.windows("test")
    z, error = embed(model, test)  # all windows, because the graphs of a graph model must be complete
    label, normal = kind_labels(test), test.anomaly == ""
    sample = balanced_sample(test, np.random.default_rng(0))
    anomalies = sorted(set(test.anomaly.tolist()) - {""})
    return EvaluatedMember(
        member.recipe,
        member.settings.seed,
        model.config.latent,
        float(error[normal].mean()),
        float(error[label == BAD_IO].mean()) if (label == BAD_IO).any() else float("nan"),
        silhouette(z[sample], label[sample]),
        silhouette(z[sample] @ directions, label[sample]),
        {kind: float(error[label == kind].mean()) for kind in sorted(set(label.tolist()) - {""})},
        {anomaly: roc_auc(error[normal], error[test.anomaly == anomaly]) for anomaly in anomalies},
        time.process_time() - began_s,
        member.settings,
        {key: value.numpy() for key, value in model.state_dict().items()},
    )
