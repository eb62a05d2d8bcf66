"""The contract of every model: windows of a group of threads -> embeddings -> reconstructed windows.

A model is a `torch.nn.Module` whose constructor takes its frozen config. It receives a `Batch`: the windows, which of
their seconds are valid, and the group of each window. The encoder reads only the free channels: a simplex of k channels
has k - 1 of them, and `other` is never an input. The decoder returns logits for every channel. A softmax over each
simplex and a sigmoid on each bounded channel turn them into valid ratios.
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
    """The windows that a model accepts."""

    schema: Schema = CPU
    length: int = 100

    @property
    def inputs(self) -> tuple[int, ...]:
        """Indices of the free channels: all but the last of each simplex, which the others determine."""
        implied = {indices[-1] for indices in self.schema.simplexes.values()}
        return tuple(i for i in range(len(self.schema)) if i not in implied)


@dataclass(frozen=True, slots=True)
class Batch:
    """n windows. The windows of one group cover the same seconds on one node, or in one job."""

    x: Tensor  # (n, length, channel)
    valid: Tensor  # (n, length) bool
    group: Tensor  # (n,) int64, contiguous runs; without a graph every window is its own group
    job: Tensor | None = None  # (n,) int64, equal for windows of one job, -1: no job; only training reads it


class Fused(Protocol):
    """A model without autograd whose results differ from the original's by less than 1e-5."""

    def __call__(
        self, values: NDArray[np.float32], valid: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, length, channel) and (n, length) -> embedding (n, latent) and reconstruction error (n,)."""
        ...


class Autoencoder(nn.Module, ABC):
    """Base class of all models. Architectures differ in `encode` and `decode`; inputs and outputs are the same.

    The names of submodules are keys of the stored weights: renaming one makes older model files unreadable.
    """

    #: Which windows exchange messages: "" none, "node" those of one node, "job" those of one job.
    graph: ClassVar[str] = ""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        shape: Shape = config.shape
        # A slice, where the input channels are adjacent, is three times as fast as a list of indices.
        first, last = shape.inputs[0], shape.inputs[-1]
        adjacent = shape.inputs == tuple(range(first, last + 1))
        self.inputs = slice(first, last + 1) if adjacent else list(shape.inputs)
        # Logits of the mean ratios: a softmax that starts far from them starts saturated and does not learn.
        self.register_buffer("prior", torch.zeros(len(shape.schema)))

    @abstractmethod
    def encode(self, batch: Batch) -> Tensor:
        """(n, length, channel) -> (n, latent)."""

    @abstractmethod
    def decode(self, z: Tensor) -> Tensor:
        """(n, latent) -> logits relative to the prior (n, length, channel)."""

    def masked_inputs(self, batch: Batch) -> Tensor:
        """The input channels of a batch, zero in masked seconds: (n, length, input)."""
        return batch.x[:, :, self.inputs] * batch.valid[:, :, None]

    def ratios(self, logits: Tensor) -> Tensor:
        """Logits relative to the prior -> ratios: a softmax over each simplex, a sigmoid for each bounded channel."""
        schema = self.config.shape.schema
        # A softmax over the last axis, of only four numbers, is eight times slower than over this one.
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
        """The training loss, by default the mean reconstruction error, and the embedding (n, latent)."""
        z, reconstruction = self(batch)
        return reconstruction_error(batch, reconstruction).mean(), z

    def fused(self) -> Fused | None:
        """A faster form of the same model for inference; None if the architecture has none."""
        return None

    def prepare(self, x: Tensor) -> None:
        """Initialise what depends on the data from the training windows (n, length, channel), before training."""
        mean = x.mean((0, 1)).clamp(1e-3, 1 - 1e-3)  # (channel,)
        bounded = list(self.config.shape.schema.bounded)
        self.prior.copy_(mean.log())
        self.prior[bounded] = mean.logit()[bounded]


def reconstruction_error(batch: Batch, reconstruction: Tensor) -> Tensor:
    """Mean squared error of each window over channels and valid seconds: (n,)."""
    squared = (reconstruction - batch.x).square().mean(-1) * batch.valid  # (n, length)
    return squared.sum(-1) / batch.valid.sum(-1).clamp(min=1)


def config_to_json(config: Any) -> dict[str, Any]:
    """A model's config as plain JSON values."""
    plain = asdict(config)
    plain["shape"] = {"schema": config.shape.schema.to_json(), "length": config.shape.length}
    return plain


def config_from_json(kind: type[Any], plain: dict[str, Any]) -> Any:
    """The inverse of `config_to_json`. Unknown or missing keys raise TypeError or KeyError; the caller reports them."""
    shape = Shape(Schema.from_json(plain["shape"]["schema"]), plain["shape"]["length"])
    rest = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items() if key != "shape"}
    return kind(shape=shape, **rest)
