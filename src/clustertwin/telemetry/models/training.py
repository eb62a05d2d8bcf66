"""Windows and settings -> a trained model: AdamW, a one-cycle learning rate, early stopping on the validation error.

The same seed gives the same weights. With a checkpoint directory, a run that was killed resumes after its last complete
epoch and ends with the weights of an uninterrupted run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clustertwin.core import files
from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.batches import GroupedWindows, group_windows
from clustertwin.telemetry.models.contract import Autoencoder, Shape, config_to_json, reconstruction_error
from clustertwin.telemetry.models.contrastive_loss import contrastive_loss

_WARM_UP = 0.15  # part of the training


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a model is trained. Checkpoints, model notes and study caches store these fields under these names."""

    model: str = "linear"
    options: dict[str, Any] = field(default_factory=dict)  # fields of the model's config
    epochs: int = 30
    batch: int = 128  # batch size
    rate: float = 2e-3  # peak learning rate of the cycle
    decay: float = 1e-4  # weight decay
    patience: int = 8  # epochs without a lower validation error before training stops
    contrast: float = 0.0  # weight of the contrastive loss; 1e-3 separates job types
    seed: int = 0


def settings_for_length(settings: TrainingSettings, length_s: int) -> TrainingSettings:
    """Limit the default model's embedding to one number per second for windows shorter than 100 s.

    >>> settings_for_length(TrainingSettings(), 30).options
    {'latent': 30}
    """
    # With the usual 110 numbers it would store a window of thirty seconds completely, whatever its content.
    if settings.model != "linear" or length_s >= 100:
        return settings
    return replace(settings, options={"latent": length_s} | settings.options)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The result of one pass over the training windows; number 0 is the model before the first pass."""

    number: int
    train: float  # loss of the last batch
    validation: float  # mean reconstruction error


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model with the weights of its best epoch, and the history of its training."""

    model: Autoencoder
    settings: TrainingSettings
    history: tuple[Epoch, ...]

    @property
    def validation(self) -> float:
        """The lowest validation error."""
        return min(epoch.validation for epoch in self.history)


def fit(
    train: Windows,
    validation: Windows,
    settings: TrainingSettings = TrainingSettings(),
    progress: Callable[[Epoch], None] = lambda epoch: None,
    checkpoint: Path | None = None,
    start: Autoencoder | None = None,
) -> TrainedModel:
    """Train a model of `settings.model` on normal windows; keep the epoch with the lowest validation error.

    With `start`, a model of the same architecture, training begins from a copy of its weights.
    """
    if not len(train) or not len(validation):
        raise SettingsError(f"nothing to train on: {len(train)} training and {len(validation)} validation windows")
    torch.manual_seed(settings.seed)
    config, network = find(settings.model)
    shape = Shape(train.schema, train.values.shape[1])
    model = network(config(shape=shape, **settings.options))
    data, held_out = group_windows(train, model.graph, shape), group_windows(validation, model.graph, shape)
    if start is None:
        model.prepare(data.x)
    elif config_to_json(start.config) != config_to_json(model.config):
        raise SettingsError(f"cannot start from a {type(start).__name__} of another shape or with other options")
    else:
        model.load_state_dict(start.state_dict())
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=settings.decay, fused=True)
    run = _Run(model, optimiser, settings, _digest(data, held_out) if checkpoint else "")
    if checkpoint and (checkpoint / "run.json").exists():
        run.restore(checkpoint)
    if not run.history:
        untrained = float(infer(model, held_out)[1].mean())
        progress(Epoch(0, untrained, untrained))
    with _flushed_denormals():
        while not run.finished:
            progress(run.train_epoch(data, held_out))
            if checkpoint:
                run.save(checkpoint)
    model.load_state_dict(run.best)
    return TrainedModel(model.eval(), settings, tuple(run.history))


def _digest(*parts: GroupedWindows) -> str:
    """The SHA-256 of the windows of a run."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.x.contiguous().numpy())
    return digest.hexdigest()


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero: they took half the time of a converging run.

    The setting applies to the whole process, so it is restored afterwards.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@torch.no_grad()
def infer(model: Autoencoder, data: GroupedWindows, size: int = 4096) -> tuple[Tensor, Tensor]:
    """Embedding (n, latent) and reconstruction error (n,) of every window, in the original order of the windows."""
    model.eval()
    embeddings, errors = [], []
    for batch in data.batches(size):
        z, reconstruction = model(batch)
        embeddings.append(z)
        errors.append(reconstruction_error(batch, reconstruction))
    original = torch.from_numpy(data.order).argsort()
    return torch.cat(embeddings)[original], torch.cat(errors)[original]


class _Run:
    """The state of a training run: weights, the optimiser's moments, history."""

    def __init__(
        self, model: Autoencoder, optimiser: torch.optim.AdamW, settings: TrainingSettings, data_sha256: str
    ) -> None:
        self.model, self.optimiser, self.settings, self.data_sha256 = model, optimiser, settings, data_sha256
        self.history: list[Epoch] = []
        self.best: dict[str, Tensor] = {}

    @property
    def finished(self) -> bool:
        errors = [epoch.validation for epoch in self.history]
        epochs_since_best = len(errors) - 1 - errors.index(min(errors)) if errors else 0
        return len(errors) >= self.settings.epochs or epochs_since_best >= self.settings.patience

    def train_epoch(self, data: GroupedWindows, held_out: GroupedWindows) -> Epoch:
        number, trained = len(self.history), 0
        # Each epoch seeds its own generators, so that a resumed run shuffles and samples as an uninterrupted one.
        shuffle = torch.Generator().manual_seed(self.settings.seed * 100_003 + number)
        torch.manual_seed(self.settings.seed * 100_003 + number)
        self.model.train()
        for batch in data.batches(self.settings.batch, shuffle):
            progress = (number + trained / len(data)) / self.settings.epochs
            for parameters in self.optimiser.param_groups:
                parameters["lr"] = self.settings.rate * one_cycle(progress)
            loss, z = self.model.loss(batch)
            if self.settings.contrast and batch.job is not None:
                loss = loss + self.settings.contrast * contrastive_loss(z, batch.job)
            self.optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimiser.step()
            trained += len(batch.x)
        error = float(infer(self.model, held_out)[1].mean())
        if not math.isfinite(error):
            raise SettingsError(
                f"training diverged in epoch {number + 1}; try a learning rate below {self.settings.rate}"
            )
        self.history.append(Epoch(number + 1, float(loss.detach()), error))
        if error <= min(epoch.validation for epoch in self.history):
            self.best = {key: value.clone() for key, value in self.model.state_dict().items()}
        return self.history[-1]

    def save(self, directory: Path) -> None:
        tensors = {f"model.{key}": value for key, value in self.model.state_dict().items()}
        tensors |= {f"best.{key}": value for key, value in self.best.items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"moment.{i}.{key}": value for key, value in state.items()}
        files.make_directory(directory)
        # The epoch number in the name ties both files together. The JSON is replaced last and commits the checkpoint.
        name = f"run-{len(self.history)}.safetensors"
        contiguous = {key: value.contiguous() for key, value in tensors.items()}
        files.write(directory / name, require("safetensors.torch", "models").save(contiguous))
        plain = {
            "settings": asdict(self.settings),
            "data_sha256": self.data_sha256,
            "history": [asdict(e) for e in self.history],
            "tensors": name,
        }
        files.write(directory / "run.json", json.dumps(plain))
        for old in directory.glob("run-*.safetensors"):
            if old.name != name:
                old.unlink()

    def restore(self, directory: Path) -> None:
        plain = json.loads((directory / "run.json").read_text())
        if plain["settings"] != json.loads(json.dumps(asdict(self.settings))):
            raise InputError(
                directory, "the checkpoint was made with other settings; use the same settings or remove the directory"
            )
        # A checkpoint of version 0.1 does not record its windows; it is only there if that run was interrupted.
        if plain.get("data_sha256", self.data_sha256) != self.data_sha256:
            raise InputError(
                directory, "the checkpoint was made with other windows; use the same recordings or remove the directory"
            )
        tensors = require("safetensors.torch", "models").load_file(directory / plain["tensors"])

        def with_prefix(prefix: str) -> dict[str, Tensor]:
            return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

        self.model.load_state_dict(with_prefix("model."))
        self.best = with_prefix("best.")
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in with_prefix("moment.").items():
            number, _, name = key.partition(".")
            moments.setdefault(int(number), {})[name] = value
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.history = [Epoch(**epoch) for epoch in plain["history"]]


def one_cycle(progress: float) -> float:
    """The learning rate as a fraction of its peak: cosine warm-up, then cosine decay to almost zero.

    `progress` is the part of the training that is done, in [0, 1].
    """
    if progress < _WARM_UP:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * progress / _WARM_UP)) / 2
    return max((1 + math.cos(math.pi * (progress - _WARM_UP) / (1 - _WARM_UP))) / 2, 1e-4)
