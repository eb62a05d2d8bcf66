"""Windows and settings -> a fitted model: AdamW, one cycle of the learning rate, the best epoch on validation kept.

The same seed gives the same weights. With a checkpoint directory, a run that was killed goes on where it stopped and
ends with the weights it would have had.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.batches import Grouped, group
from clustertwin.telemetry.models.contract import Autoencoder, Shape, config_to_json, errors
from clustertwin.telemetry.models.contrastive_loss import scatter


@dataclass(frozen=True, slots=True)
class Settings:
    model: str = "linear"
    options: dict[str, Any] = field(default_factory=dict)  # fields of the model's config
    epochs: int = 30
    batch: int = 128
    rate: float = 2e-3  # the peak of the cycle
    decay: float = 1e-4
    patience: int = 8  # epochs without a better validation error
    contrast: float = 0.0  # weight of the term that gathers the threads of a job; 1e-3 separates job types
    seed: int = 0


def suited(settings: Settings, length_s: int) -> Settings:
    """These settings for windows of this length: of short ones the default model keeps a number a second, not 110.

    >>> suited(Settings(), 30).options
    {'latent': 30}
    """
    # So many would hold a window of thirty seconds whole, and say nothing about it.
    if settings.model != "linear" or length_s >= 100:
        return settings
    return replace(settings, options={"latent": length_s} | settings.options)


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one pass gave; the progress callback sees each. Number 0 is the model before the first pass."""

    number: int
    train: float
    validation: float


@dataclass(frozen=True, slots=True)
class Fit:
    model: Autoencoder
    settings: Settings
    history: tuple[Epoch, ...]

    @property
    def validation(self) -> float:
        return min(epoch.validation for epoch in self.history)


def fit(
    train: Windows,
    validation: Windows,
    settings: Settings = Settings(),
    progress: Callable[[Epoch], None] = lambda epoch: None,
    checkpoint: Path | None = None,
    start: Autoencoder | None = None,
) -> Fit:
    """Train a model of `settings.model` on normal windows; keep the epoch that is best on validation.

    With `start`, a model of the same architecture, training goes on from a copy of its weights.
    """
    if not len(train) or not len(validation):
        raise SettingsError(f"nothing to train on: {len(train)} training and {len(validation)} validation windows")
    torch.manual_seed(settings.seed)
    config, network = find(settings.model)
    shape = Shape(train.schema, train.values.shape[1])
    model = network(config(shape=shape, **settings.options))
    data, held_out = group(train, model.graph, shape), group(validation, model.graph, shape)
    if start is None:
        model.prepare(data.x)
    elif config_to_json(start.config) != config_to_json(model.config):
        raise SettingsError(f"cannot start from a {type(start).__name__} of another shape or other options")
    else:
        model.load_state_dict(start.state_dict())
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=settings.decay, fused=True)
    run = _Run(model, optimiser, settings)
    if checkpoint and (checkpoint / "run.json").exists():
        run.restore(checkpoint)
    if not run.history:
        before = float(evaluate(model, held_out)[1].mean())
        progress(Epoch(0, before, before))
    with _without_denormals():
        while not run.over:
            progress(run.epoch(data, held_out))
            if checkpoint:
                run.save(checkpoint)
    model.load_state_dict(run.best)
    return Fit(model.eval(), settings, tuple(run.history))


@contextmanager
def _without_denormals() -> Iterator[None]:
    """Half the time of a converging run went into denormals. They are the whole process's: give them back."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@torch.no_grad()
def evaluate(model: Autoencoder, data: Grouped, size: int = 4096) -> tuple[Tensor, Tensor]:
    """Embedding (n, latent) and error (n,) of every window, in the windows' own order."""
    model.eval()
    z, e = [], []
    for batch in data.batches(size):
        embedding, reconstruction = model(batch)
        z.append(embedding)
        e.append(errors(batch, reconstruction))
    back = torch.from_numpy(data.order).argsort()
    return torch.cat(z)[back], torch.cat(e)[back]


class _Run:
    """Where a training run stands: weights, moments, history."""

    def __init__(self, model: Autoencoder, optimiser: torch.optim.AdamW, settings: Settings) -> None:
        self.model, self.optimiser, self.settings = model, optimiser, settings
        self.history: list[Epoch] = []
        self.best: dict[str, Tensor] = {}

    @property
    def over(self) -> bool:
        scores = [epoch.validation for epoch in self.history]
        stale = len(scores) - 1 - scores.index(min(scores)) if scores else 0
        return len(scores) >= self.settings.epochs or stale >= self.settings.patience

    def epoch(self, data: Grouped, held_out: Grouped) -> Epoch:
        number, total = len(self.history), 0.0
        # A generator of its own for each epoch: a resumed run shuffles and samples as an unbroken one.
        shuffle = torch.Generator().manual_seed(self.settings.seed * 100_003 + number)
        torch.manual_seed(self.settings.seed * 100_003 + number)
        self.model.train()
        for batch in data.batches(self.settings.batch, shuffle):
            done = (number + total / len(data)) / self.settings.epochs
            for parameters in self.optimiser.param_groups:
                parameters["lr"] = self.settings.rate * one_cycle(done)
            loss, z = self.model.loss(batch)
            if self.settings.contrast and batch.job is not None:
                loss = loss + self.settings.contrast * scatter(z, batch.job)
            self.optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimiser.step()
            total += len(batch.x)
        error = float(evaluate(self.model, held_out)[1].mean())
        if not math.isfinite(error):
            raise SettingsError(
                f"training diverged in epoch {number + 1}: a lower rate than {self.settings.rate} may help"
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
        directory.mkdir(parents=True, exist_ok=True)
        part = directory / "run.safetensors.part"
        require("safetensors.torch", "models").save_file({k: v.contiguous() for k, v in tensors.items()}, part)
        # The number in the name ties both files together; the JSON, replaced last, is the commit.
        name = f"run-{len(self.history)}.safetensors"
        part.replace(directory / name)
        plain = {"settings": asdict(self.settings), "history": [asdict(e) for e in self.history], "tensors": name}
        (directory / "run.json.part").write_text(json.dumps(plain))
        (directory / "run.json.part").replace(directory / "run.json")
        for old in directory.glob("run-*.safetensors"):
            if old.name != name:
                old.unlink()

    def restore(self, directory: Path) -> None:
        plain = json.loads((directory / "run.json").read_text())
        if plain["settings"] != json.loads(json.dumps(asdict(self.settings))):
            raise InputError(directory, "the checkpoint was made with other settings; remove it or use them again")
        tensors = require("safetensors.torch", "models").load_file(directory / plain["tensors"])

        def part(prefix: str) -> dict[str, Tensor]:
            return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

        self.model.load_state_dict(part("model."))
        self.best = part("best.")
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in part("moment.").items():
            number, _, name = key.partition(".")
            moments.setdefault(int(number), {})[name] = value
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.history = [Epoch(**epoch) for epoch in plain["history"]]


def one_cycle(done: float, rise: float = 0.15) -> float:
    """The learning rate as a fraction of its peak: up along a cosine, then down to nothing."""
    if done < rise:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * done / rise)) / 2
    return max((1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2, 1e-4)
