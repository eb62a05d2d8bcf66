"""A small, fast autoencoder: short patches embedded by one matrix product, mixed by an MLP into z, and back.

A patch of five seconds holds most of what a thread does next to itself; one matrix product over all patches does the
work of the reference's first convolutions at a fraction of their cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn import functional as F

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.models.contract import Autoencoder, Batch, Shape


@dataclass(frozen=True, slots=True)
class Config:
    shape: Shape = field(default_factory=Shape)
    latent: int = 16
    patch_s: int = 5
    width: int = 24
    hidden: int = 128

    def __post_init__(self) -> None:
        if self.shape.length % self.patch_s:
            raise SettingsError(f"patch_s {self.patch_s} does not divide a window of {self.shape.length} samples")


class PatchAutoencoder(Autoencoder):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        shape = config.shape
        patches = shape.length // config.patch_s
        self.embed = nn.Linear(config.patch_s * len(shape.inputs), config.width)
        self.to_z = nn.Sequential(
            nn.Linear(patches * config.width, config.hidden), nn.GELU(), nn.Linear(config.hidden, config.latent)
        )
        self.from_z = nn.Sequential(
            nn.Linear(config.latent, config.hidden), nn.GELU(), nn.Linear(config.hidden, patches * config.width)
        )
        self.unembed = nn.Linear(config.width, config.patch_s * len(shape.schema))

    def encode(self, batch: Batch) -> Tensor:
        x = self.seen(batch).unflatten(1, (-1, self.config.patch_s)).flatten(2)  # (n, patch, patch_s * input)
        return self.to_z(F.gelu(self.embed(x)).flatten(1))  # (n, latent)

    def decode(self, z: Tensor) -> Tensor:
        x = F.gelu(self.from_z(z)).unflatten(1, (-1, self.config.width))  # (n, patch, width)
        return self.unembed(x).unflatten(2, (self.config.patch_s, -1)).flatten(1, 2)  # (n, length, channel)
