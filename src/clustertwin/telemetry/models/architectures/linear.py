"""The fastest autoencoder: a linear path that starts as PCA of the ratios, and an MLP that bends what comes out of it.

    z = P x + A gelu(B x)          x' ∝ max(U z, floor) · exp(C gelu(D z))

The MLPs start at zero, so the model starts as PCA, cut to possible ratios, and can only become better. Multiplying the
linear path's ratios, and not adding to their logits, keeps the many seconds that are plainly linear exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clustertwin.telemetry.models.contract import Autoencoder, Batch, Shape
from clustertwin.telemetry.models.fused.fused_linear import FusedLinear, fuse

#: The smallest ratio that the linear path gives.
FLOOR = 1e-3


@dataclass(frozen=True, slots=True)
class Config:
    shape: Shape = field(default_factory=Shape)
    latent: int = 110  # an MPI rank's seconds are independent draws: a number each, and some for all else
    hidden: int = 32
    sample: int = 8192  # windows that the principal components are taken from


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
        # all channels = seen ones @ whole + rest: the last of a simplex is what the others leave of one
        whole, rest = torch.zeros(len(shape.inputs), len(shape.schema)), torch.zeros(len(shape.schema))
        for row, channel in enumerate(shape.inputs):
            whole[row, channel] = 1.0
        for indices in shape.schema.simplexes.values():
            rest[indices[-1]] = 1.0
            for channel in indices[:-1]:
                whole[shape.inputs.index(channel), indices[-1]] = -1.0
        self.register_buffer("whole", whole, persistent=False)
        self.register_buffer("rest", rest, persistent=False)

    @torch.no_grad()
    def prepare(self, x: Tensor) -> None:
        """Set the linear path to the principal components of the training windows."""
        super().prepare(x)
        # In double precision the last bit of a product, which depends on memory, does not reach the weights.
        seen = x[:: max(len(x) // self.config.sample, 1)].double()[:, :, self.inputs].flatten(1)
        mean = seen.mean(0)
        _, axes = torch.linalg.eigh((seen - mean).T @ (seen - mean) / len(seen))  # ascending
        axes = axes.flip(1)[:, : self.config.latent]  # (input, latent); fewer where a window is shorter than that
        for layer in (self.project, self.unproject):
            layer.weight.zero_()
        self.project.weight[: axes.shape[1]] = axes.T.float()
        self.project.bias.zero_()
        self.project.bias[: axes.shape[1]] = -(mean @ axes).float()
        self.unproject.weight[:, : axes.shape[1]] = axes.float()
        self.unproject.bias.copy_(mean)

    def encode(self, batch: Batch) -> Tensor:
        x = self.seen(batch).flatten(1)  # (n, length * input)
        return self.project(x) + self.bend_to_z(F.gelu(self.bend(x)))  # (n, latent)

    def decode(self, z: Tensor) -> Tensor:
        ratio = self.unproject(z).unflatten(1, (self.config.shape.length, -1))  # (n, length, input)
        ratio = (ratio @ self.whole + self.rest).clamp(min=FLOOR)  # (n, length, channel)
        bent = self.unbend_to_x(F.gelu(self.unbend(z))).unflatten(1, (self.config.shape.length, -1))
        return self._logits(ratio) + bent - self.prior  # (n, length, channel)

    def fused(self) -> FusedLinear:
        return fuse(self, FLOOR)

    def _logits(self, ratio: Tensor) -> Tensor:
        """What softmax and sigmoid turn back into these ratios."""
        alone = list(self.config.shape.schema.bounded)
        if not alone:
            return ratio.log()
        rest = torch.ones_like(ratio)
        rest[..., alone] = (1 - ratio[..., alone]).clamp(min=FLOOR)
        return (ratio / rest).log()
