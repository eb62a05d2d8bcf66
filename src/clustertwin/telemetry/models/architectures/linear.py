"""The default autoencoder: a linear path that starts as PCA of the ratios, corrected by small MLPs.

    z = P x + A gelu(B x)          x' ∝ max(U z, floor) · exp(C gelu(D z))

The MLPs start at zero, so the model starts as PCA clipped to valid ratios, and training improves on it. The correction
multiplies the ratios of the linear path. Seconds that the linear path reconstructs exactly stay exact that way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clustertwin.telemetry.models.contract import Autoencoder, Batch, Shape
from clustertwin.telemetry.models.fused.fused_linear import FusedLinear, fuse

#: The smallest ratio of the linear path.
FLOOR = 1e-3


@dataclass(frozen=True, slots=True)
class Config:
    shape: Shape = field(default_factory=Shape)
    latent: int = 110  # the seconds of an MPI rank are independent: one number each, and ten for the rest
    hidden: int = 32
    sample: int = 8192  # windows from which the principal components are computed


class LinearPathAutoencoder(Autoencoder):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        shape = config.shape
        inputs, outputs = shape.length * len(shape.inputs), shape.length * len(shape.schema)
        self.project = nn.Linear(inputs, config.latent)
        self.bend = nn.Linear(inputs, config.hidden)
        self.bend_to_z = nn.Linear(config.hidden, config.latent, bias=False)
        self.unproject = nn.Linear(config.latent, inputs)
        self.unbend = nn.Linear(config.latent, config.hidden)
        self.unbend_to_x = nn.Linear(config.hidden, outputs, bias=False)
        nn.init.zeros_(self.bend_to_z.weight)
        nn.init.zeros_(self.unbend_to_x.weight)
        # all channels = inputs @ completion + constant: the last channel of a simplex is one minus the others
        completion, constant = torch.zeros(len(shape.inputs), len(shape.schema)), torch.zeros(len(shape.schema))
        for row, channel in enumerate(shape.inputs):
            completion[row, channel] = 1.0
        for indices in shape.schema.simplexes.values():
            constant[indices[-1]] = 1.0
            for channel in indices[:-1]:
                completion[shape.inputs.index(channel), indices[-1]] = -1.0
        self.register_buffer("completion", completion, persistent=False)
        self.register_buffer("constant", constant, persistent=False)

    @torch.no_grad()
    def prepare(self, x: Tensor) -> None:
        """Set the linear path to the principal components of the training windows."""
        super().prepare(x)
        # In double precision, rounding that depends on memory alignment does not reach the float32 weights.
        inputs = x[:: max(len(x) // self.config.sample, 1)].double()[:, :, self.inputs].flatten(1)
        mean = inputs.mean(0)
        _, axes = torch.linalg.eigh((inputs - mean).T @ (inputs - mean) / len(inputs))  # ascending
        axes = axes.flip(1)[:, : self.config.latent]  # (input, latent), or fewer columns if the window has fewer inputs
        for layer in (self.project, self.unproject):
            layer.weight.zero_()
        self.project.weight[: axes.shape[1]] = axes.T.float()
        self.project.bias.zero_()
        self.project.bias[: axes.shape[1]] = -(mean @ axes).float()
        self.unproject.weight[:, : axes.shape[1]] = axes.float()
        self.unproject.bias.copy_(mean)

    def encode(self, batch: Batch) -> Tensor:
        x = self.masked_inputs(batch).flatten(1)  # (n, length * input)
        return self.project(x) + self.bend_to_z(F.gelu(self.bend(x)))  # (n, latent)

    def decode(self, z: Tensor) -> Tensor:
        ratio = self.unproject(z).unflatten(1, (self.config.shape.length, -1))  # (n, length, input)
        ratio = (ratio @ self.completion + self.constant).clamp(min=FLOOR)  # (n, length, channel)
        correction = self.unbend_to_x(F.gelu(self.unbend(z))).unflatten(1, (self.config.shape.length, -1))
        return self._logits(ratio) + correction - self.prior  # (n, length, channel)

    def fused(self) -> FusedLinear:
        return fuse(self, FLOOR)

    def _logits(self, ratio: Tensor) -> Tensor:
        """The inverse of softmax and sigmoid."""
        bounded = list(self.config.shape.schema.bounded)
        if not bounded:
            return ratio.log()
        complement = torch.ones_like(ratio)
        complement[..., bounded] = (1 - ratio[..., bounded]).clamp(min=FLOOR)
        return (ratio / complement).log()
