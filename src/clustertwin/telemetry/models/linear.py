"""The fastest autoencoder: a linear path that starts as PCA, and an MLP beside it that learns what PCA cannot.

Three matrix products each way. PCA gives the reference's quality for one singular value decomposition; the MLP,
which starts at zero, can only add to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clustertwin.telemetry.models.contract import Autoencoder, Batch, Shape


@dataclass(frozen=True, slots=True)
class Config:
    shape: Shape = field(default_factory=Shape)
    latent: int = 16
    hidden: int = 128
    sample: int = 4096  # windows that the principal components are taken from


class LinearPathAutoencoder(Autoencoder):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        inputs = config.shape.length * len(config.shape.inputs)
        outputs = config.shape.length * len(config.shape.schema)
        self.project = nn.Linear(inputs, config.latent)
        self.bend = nn.Linear(inputs, config.hidden)
        self.bend_to_z = nn.Linear(config.hidden, config.latent, bias=False)
        self.unproject = nn.Linear(config.latent, outputs)
        self.unbend = nn.Linear(config.latent, config.hidden)
        self.unbend_to_x = nn.Linear(config.hidden, outputs, bias=False)
        nn.init.zeros_(self.bend_to_z.weight)
        nn.init.zeros_(self.unbend_to_x.weight)

    @torch.no_grad()
    def prepare(self, x: Tensor) -> None:
        """Set the linear path to the principal components of the training windows."""
        super().prepare(x)
        # In double precision the last bit of a product, which depends on memory, does not reach the weights.
        x = x[:: max(len(x) // self.config.sample, 1)].double()
        seen = x[:, :, self._inputs].flatten(1)
        mean = seen.mean(0)
        variance, axes = torch.linalg.eigh((seen - mean).T @ (seen - mean) / len(seen))  # ascending
        spread, axes = variance.clamp(min=0).sqrt().flip(0)[: self.config.latent], axes.flip(1)[:, : self.config.latent]
        spread = spread.clamp(min=max(0.05 * float(spread[0]), 1e-3))  # a direction of no spread is not blown up to one
        self.project.weight.copy_((axes / spread).T)
        self.project.bias.copy_(-(mean @ axes) / spread)
        # Back: linear in ratio space is not linear in logits, so regress the logits of what was seen on z.
        z = (seen - mean) @ axes / spread  # (n, latent)
        logits = (x.clamp(0.003, 1).log() - self.prior).flatten(1)
        centre = logits.mean(0)
        ridge = torch.eye(z.shape[1], dtype=z.dtype) * 1e-3
        self.unproject.weight.copy_(torch.linalg.solve(z.T @ z / len(z) + ridge, z.T @ (logits - centre) / len(z)).T)
        self.unproject.bias.copy_(centre)

    def encode(self, batch: Batch) -> Tensor:
        x = self.seen(batch).flatten(1)  # (n, length * input)
        return self.project(x) + self.bend_to_z(F.gelu(self.bend(x)))  # (n, latent)

    def decode(self, z: Tensor) -> Tensor:
        x = self.unproject(z) + self.unbend_to_x(F.gelu(self.unbend(z)))
        return x.unflatten(1, (self.config.shape.length, -1))  # (n, length, channel)
