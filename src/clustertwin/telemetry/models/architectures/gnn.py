"""The graph-assisted autoencoders: the reference one with message passing between the threads of a node or a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clustertwin.telemetry.models.architectures import ae
from clustertwin.telemetry.models.architectures.graph_layer import GraphUpdate
from clustertwin.telemetry.models.contract import Batch


@dataclass(frozen=True, slots=True)
class Config(ae.Config):
    message: int = 32  # hidden width of the attention and update MLPs


class NodeGraphAutoencoder(ae.ConvAutoencoder):
    graph: ClassVar[str] = "node"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.update = GraphUpdate(config.latent, config.message)

    def encode(self, batch: Batch) -> Tensor:
        return self.update(super().encode(batch), batch.group)


class JobGraphAutoencoder(NodeGraphAutoencoder):
    graph: ClassVar[str] = "job"
