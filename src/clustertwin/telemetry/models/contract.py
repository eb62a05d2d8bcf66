"""What every model is: windows of a group of threads -> embeddings -> reconstructed windows.

A model is a `torch.nn.Module` whose constructor takes its frozen config. It sees a `Batch`: the channels of each
window that are free to vary (a simplex of k channels has k - 1; `other` is never an input), with masked seconds set
to zero, and the group each window belongs to. It gives back every channel; softmax and sigmoid keep them possible.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clustertwin.core.channels import CPU, Schema


@dataclass(frozen=True, slots=True)
class Shape:
    """The windows a model is made for."""

    schema: Schema = CPU
    length: int = 100

    @property
    def inputs(self) -> tuple[int, ...]:
        """Indices of the channels a model may see: all but the last of each simplex, which the others imply."""
        implied = {indices[-1] for indices in self.schema.simplexes.values()}
        return tuple(i for i in range(len(self.schema)) if i not in implied)


@dataclass(frozen=True, slots=True)
class Batch:
    """n windows. Windows of one group were taken at the same time on one node, or in one job."""

    x: Tensor  # (n, length, channel)
    valid: Tensor  # (n, length) bool
    group: Tensor  # (n,) int64, contiguous runs; every window a group of its own where there is no graph
    job: Tensor | None = None  # (n,) int64, equal for windows of one job, -1: no job; only training asks for it


class Fused(Protocol):
    """A model without autograd, equal to the original to 1e-5."""

    def __call__(
        self, values: NDArray[np.float32], valid: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, length, channel) and (n, length) -> embedding (n, latent) and mean squared error (n,)."""
        ...


class Autoencoder(nn.Module, ABC):
    """The base of all models: parts differ, the way in and the way out do not."""

    #: Which windows see each other: "" none, "node" those of a node, "job" those of a job.
    graph: ClassVar[str] = ""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        shape: Shape = config.shape
        # A slice where the inputs lie side by side, as those of one simplex do: three times as fast as a list.
        first, last = shape.inputs[0], shape.inputs[-1]
        together = shape.inputs == tuple(range(first, last + 1))
        self.inputs = slice(first, last + 1) if together else list(shape.inputs)
        # Logits of the mean ratios: a softmax that starts far from them starts saturated and learns nothing.
        self.register_buffer("prior", torch.zeros(len(shape.schema)))

    @abstractmethod
    def encode(self, batch: Batch) -> Tensor:
        """(n, length, channel) -> (n, latent)."""

    @abstractmethod
    def decode(self, z: Tensor) -> Tensor:
        """(n, latent) -> logits about the prior (n, length, channel)."""

    def seen(self, batch: Batch) -> Tensor:
        """The inputs of a batch, masked seconds zeroed: (n, length, input)."""
        return batch.x[:, :, self.inputs] * batch.valid[:, :, None]

    def ratios(self, logits: Tensor) -> Tensor:
        """Logits about the prior -> ratios: a softmax over each simplex, a sigmoid for each bounded channel."""
        schema = self.config.shape.schema
        # Across rows, not along them: a softmax over the last four numbers of an array is eight times slower.
        logits = (logits + self.prior).transpose(1, 2)  # (n, channel, length)
        if len(schema.simplexes) == 1 and not schema.bounded:
            return logits.softmax(1).transpose(1, 2)
        out = torch.empty_like(logits)
        for indices in schema.simplexes.values():
            where = list(indices)
            out[:, where] = logits[:, where].softmax(1)
        if schema.bounded:
            where = list(schema.bounded)
            out[:, where] = logits[:, where].sigmoid()
        return out.transpose(1, 2)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embedding (n, latent) and reconstruction (n, length, channel)."""
        z = self.encode(batch)
        return z, self.ratios(self.decode(z))

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What training makes small, the mean squared error over channels and valid seconds, and the embedding."""
        z, reconstruction = self(batch)
        return errors(batch, reconstruction).mean(), z

    def fused(self) -> Fused | None:
        """A faster form of the same model for inference; None where the architecture has none."""
        return None

    def prepare(self, x: Tensor) -> None:
        """Look at the training windows (n, length, channel) once before training."""
        mean = x.mean((0, 1)).clamp(1e-3, 1 - 1e-3)  # (channel,)
        bounded = list(self.config.shape.schema.bounded)
        self.prior.copy_(mean.log())
        self.prior[bounded] = mean.logit()[bounded]


def errors(batch: Batch, reconstruction: Tensor) -> Tensor:
    """Mean squared error of each window over channels and valid seconds: (n,)."""
    squared = (reconstruction - batch.x).square().mean(-1) * batch.valid  # (n, length)
    return squared.sum(-1) / batch.valid.sum(-1).clamp(min=1)


def config_to_json(config: Any) -> dict[str, Any]:
    """A model's config as plain JSON values."""
    plain = asdict(config)
    plain["shape"] = {"schema": config.shape.schema.to_json(), "length": config.shape.length}
    return plain


def config_from_json(kind: type[Any], plain: dict[str, Any]) -> Any:
    """The other way; unknown or missing keys are the caller's to report (TypeError, KeyError)."""
    shape = Shape(Schema.from_json(plain["shape"]["schema"]), plain["shape"]["length"])
    rest = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items() if key != "shape"}
    return kind(shape=shape, **rest)
