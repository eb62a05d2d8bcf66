"""A small, fast autoencoder: a linear embedding of short patches, an MLP to z, and the reverse.

A patch of five seconds covers most short-range structure of a thread. One matrix product over all patches replaces the
first convolutions of the reference model at a fraction of their cost.

Sixteen numbers cannot store a hundred independent seconds, but they can store how much the seconds vary. With `steps`,
the encoder also receives the absolute difference between consecutive seconds, and a linear readout of the embedding
must predict its mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.models.contract import Autoencoder, Batch, Shape, reconstruction_error


@dataclass(frozen=True, slots=True)
class Config:
    shape: Shape = field(default_factory=Shape)
    latent: int = 16
    patch_s: int = 5
    width: int = 24
    hidden: int = 128
    steps: float = 0.0  # weight of predicting the mean step between seconds; 0: steps are not used

    def __post_init__(self) -> None:
        if self.shape.length % self.patch_s:
            raise SettingsError(f"patch_s {self.patch_s} does not divide a window of {self.shape.length} samples")


class PatchAutoencoder(Autoencoder):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        shape = config.shape
        patches, inputs = shape.length // config.patch_s, len(shape.inputs)
        self.embed = nn.Linear(config.patch_s * inputs * (2 if config.steps else 1), config.width)
        self.to_z = nn.Sequential(
            nn.Linear(patches * config.width, config.hidden), nn.GELU(), nn.Linear(config.hidden, config.latent)
        )
        self.from_z = nn.Sequential(
            nn.Linear(config.latent, config.hidden), nn.GELU(), nn.Linear(config.hidden, patches * config.width)
        )
        self.unembed = nn.Linear(config.width, config.patch_s * len(shape.schema))
        if config.steps:
            self.tell_steps = nn.Linear(config.latent, inputs)

    def encode(self, batch: Batch) -> Tensor:
        x = self.masked_inputs(batch)  # (n, length, input)
        if self.config.steps:
            x = torch.cat([x, self.steps(batch)], 2)  # (n, length, 2 * input)
        x = x.unflatten(1, (-1, self.config.patch_s)).flatten(2)  # (n, patch, patch_s * input)
        return self.to_z(F.gelu(self.embed(x)).flatten(1))  # (n, latent)

    def decode(self, z: Tensor) -> Tensor:
        x = F.gelu(self.from_z(z)).unflatten(1, (-1, self.config.width))  # (n, patch, width)
        return self.unembed(x).unflatten(2, (self.config.patch_s, -1)).flatten(1, 2)  # (n, length, channel)

    def steps(self, batch: Batch) -> Tensor:
        """Absolute difference to the previous second, zero if either is masked: (n, length, input)."""
        x = self.masked_inputs(batch)
        both = (batch.valid[:, 1:] & batch.valid[:, :-1])[:, :, None]
        return F.pad((x[:, 1:] - x[:, :-1]).abs() * both, (0, 0, 1, 0))

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        z, reconstruction = self(batch)
        loss = reconstruction_error(batch, reconstruction).mean()
        if self.config.steps:
            mean_step = self.steps(batch).mean(1)  # (n, input)
            loss = loss + self.config.steps * (self.tell_steps(z) - mean_step).square().mean()
        return loss, z
