"""The reference autoencoder: residual Conv1D blocks with max pooling and an MLP to z; the decoder mirrors them."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn import functional as F

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.models.contract import Autoencoder, Batch, Shape

#: No window is as long as 2 to the power of this.
DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Config:
    shape: Shape = field(default_factory=Shape)
    latent: int = 16
    width: int = 24
    blocks: int = 2
    hidden: int = 96

    def __post_init__(self) -> None:
        if self.blocks > DEEPEST:
            raise SettingsError(f"blocks {self.blocks}: each block halves the window, so at most {DEEPEST} are allowed")


class Block(nn.Module):
    """A residual block: two convolutions and a skip connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(width, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x + self.second(F.gelu(self.first(x))))  # (n, width, time)


class ConvAutoencoder(Autoencoder):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        shape, width = config.shape, config.width
        # The lengths after each pooling step, 100 -> 50 -> 25, which the decoder restores in reverse order.
        self.lengths = [shape.length]
        for _ in range(config.blocks):
            self.lengths.append(max(self.lengths[-1] // 2, 1))
        flat = width * self.lengths[-1]
        self.enter = nn.Conv1d(len(shape.inputs), width, 5, padding=2)
        self.down = nn.ModuleList(Block(width) for _ in range(config.blocks))
        self.to_z = nn.Sequential(nn.Linear(flat, config.hidden), nn.GELU(), nn.Linear(config.hidden, config.latent))
        self.from_z = nn.Sequential(nn.Linear(config.latent, config.hidden), nn.GELU(), nn.Linear(config.hidden, flat))
        self.up = nn.ModuleList(Block(width) for _ in range(config.blocks))
        self.leave = nn.Conv1d(width, len(shape.schema), 5, padding=2)

    def encode(self, batch: Batch) -> Tensor:
        x = self.enter(self.masked_inputs(batch).transpose(1, 2))  # (n, width, length)
        for block in self.down:
            x = F.max_pool1d(block(x), 2) if x.shape[-1] > 1 else block(x)
        return self.to_z(x.flatten(1))  # (n, latent)

    def decode(self, z: Tensor) -> Tensor:
        x = F.gelu(self.from_z(z)).unflatten(1, (self.config.width, -1))  # (n, width, shortest length)
        for block, length in zip(self.up, reversed(self.lengths[:-1]), strict=True):
            x = block(F.interpolate(x, size=length))
        return self.leave(x).transpose(1, 2)  # (n, length, channel)
