"""The variational autoencoder: a Gaussian posterior of the embedding, trained on the evidence lower bound (ELBO)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clustertwin.telemetry.models.architectures import patch
from clustertwin.telemetry.models.contract import Autoencoder, Batch, reconstruction_error


@dataclass(frozen=True, slots=True)
class Config(patch.Config):
    sigma: float = 0.05  # standard deviation of a ratio given its reconstruction
    beta: float = 1.0  # weight of the KL divergence


class VariationalAutoencoder(Autoencoder):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        # Twice the latent size: a mean and a log-variance for each coordinate.
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

    def elbo(self, batch: Batch, z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        """The evidence lower bound of each window, up to a constant: (n,)."""
        values = batch.valid.sum(-1) * len(self.config.shape.schema)
        error = reconstruction_error(batch, self.ratios(self.decode(z)))
        log_likelihood = -error * values / (2 * self.config.sigma**2)
        return log_likelihood - self.config.beta * kl_divergence(mean, log_variance)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.posterior(batch)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        values = batch.valid.sum() * len(self.config.shape.schema)
        # Per value and in units of squared error, so that one learning rate suits every model.
        elbo = self.elbo(batch, z, mean, log_variance).sum()
        return -elbo / values * (2 * self.config.sigma**2), mean


def kl_divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Of a normal posterior from the standard normal prior: (n, latent) each -> (n,)."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)
