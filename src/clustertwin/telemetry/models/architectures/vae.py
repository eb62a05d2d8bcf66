"""The variational autoencoder: an embedding with error bars, and a bound on how likely a window is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clustertwin.telemetry.models.architectures import patch
from clustertwin.telemetry.models.contract import Autoencoder, Batch, errors


@dataclass(frozen=True, slots=True)
class Config(patch.Config):
    sigma: float = 0.05  # the spread of a ratio about its reconstruction
    beta: float = 1.0


class VariationalAutoencoder(Autoencoder):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        # Twice the latent: a mean and a log-variance for each coordinate.
        self.net = patch.PatchAutoencoder(replace(config, latent=2 * config.latent, steps=0.0))
        self.widen = nn.Linear(config.latent, 2 * config.latent)

    def posterior(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of z: (n, latent) each."""
        mean, log_variance = self.net.encode(batch).chunk(2, dim=1)
        return mean, log_variance.clamp(-12, 4)

    def encode(self, batch: Batch) -> Tensor:
        return self.posterior(batch)[0]

    def decode(self, z: Tensor) -> Tensor:
        return self.net.decode(self.widen(z))

    def log_likelihood(self, batch: Batch, z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        """The evidence lower bound of each window, up to a constant: (n,)."""
        seconds = batch.valid.sum(-1) * len(self.config.shape.schema)
        fit = -errors(batch, self.ratios(self.decode(z))) * seconds / (2 * self.config.sigma**2)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)
        return fit - self.config.beta * divergence

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.posterior(batch)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        seconds = batch.valid.sum() * len(self.config.shape.schema)
        # Per value and in units of squared error, so that one learning rate serves every model.
        bound = self.log_likelihood(batch, z, mean, log_variance).sum()
        return -bound / seconds * (2 * self.config.sigma**2), mean
