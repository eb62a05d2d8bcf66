"""The table of models: name -> (config, network). Plug-ins join through the entry points `clustertwin.models`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import load, require

if TYPE_CHECKING:
    from clustertwin.telemetry.models.contract import Autoencoder

#: name -> import strings of its config and of its network
MODELS: dict[str, tuple[str, str]] = {
    name: (f"{__name__}.architectures.{module}:Config", f"{__name__}.architectures.{module}:{network}")
    for name, module, network in (
        ("ae", "ae", "ConvAutoencoder"),
        ("node-gnn-ae", "gnn", "NodeGraphAutoencoder"),
        ("job-gnn-ae", "gnn", "JobGraphAutoencoder"),
        ("vae", "vae", "VariationalAutoencoder"),
        ("patch", "patch", "PatchAutoencoder"),
        ("linear", "linear", "LinearPathAutoencoder"),
    )
}

#: The architecture that is trained unless another is chosen.
DEFAULT = "linear"


def names() -> list[str]:
    """Every model: those of the table, then those of plug-ins."""
    return [*MODELS, *(point.name for point in entry_points(group="clustertwin.models"))]


def find(name: str) -> tuple[type[Any], type[Autoencoder]]:
    """The config class and the network class of a model."""
    require("torch", "models")
    if name in MODELS:
        config, network = MODELS[name]
        return load(config), load(network)
    for point in entry_points(group="clustertwin.models", name=name):
        plugin = point.load()  # a module with Config and Network
        return plugin.Config, plugin.Network
    raise SettingsError(f"unknown model {name!r}; available models: {', '.join(names())}")
