"""The graph-assisted autoencoders: the reference one, whose embeddings see those of their node or of their job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from clustertwin.telemetry.models.ae import Config as AeConfig
from clustertwin.telemetry.models.ae import ConvAutoencoder
from clustertwin.telemetry.models.contract import Batch, Shape
from clustertwin.telemetry.models.graph import GraphUpdate


@dataclass(frozen=True, slots=True)
class Config:
    shape: Shape = field(default_factory=Shape)
    latent: int = 16
    width: int = 24
    blocks: int = 2
    hidden: int = 96
    message: int = 32


class NodeGraphAutoencoder(ConvAutoencoder):
    graph: ClassVar[str] = "node"

    def __init__(self, config: Config) -> None:
        super().__init__(AeConfig(config.shape, config.latent, config.width, config.blocks, config.hidden))
        self.config = config
        self.update = GraphUpdate(config.latent, config.message)

    def encode(self, batch: Batch) -> Tensor:
        return self.update(super().encode(batch), batch.group)


class JobGraphAutoencoder(NodeGraphAutoencoder):
    graph: ClassVar[str] = "job"
