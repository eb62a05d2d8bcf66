"""A model as two files: weights.safetensors and model.json (name, config, hash, what was measured) in a directory."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clustertwin.core.errors import InputError
from clustertwin.core.extras import require
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.contract import Autoencoder, config_from_json, config_to_json


class ModelError(InputError):
    """A model directory that is not one, is damaged, or does not fit."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A model and what is known about it."""

    name: str
    model: Autoencoder
    notes: dict[str, Any] = field(default_factory=dict)
    sha256: str = ""


def save(directory: Path, name: str, model: Autoencoder, notes: dict[str, Any] | None = None) -> str:
    """Write the model; the card names the weights' hash and is written last. Returns the hash."""
    tensors = {key: value.detach().contiguous() for key, value in model.state_dict().items()}
    weights: bytes = require("safetensors.torch", "models").save(tensors)
    digest = hashlib.sha256(weights).hexdigest()
    card = {"name": name, "config": config_to_json(model.config), "sha256": digest, "notes": notes or {}}
    directory.mkdir(parents=True, exist_ok=True)
    _replace(directory / "weights.safetensors", weights)
    _replace(directory / "model.json", json.dumps(card, indent=1).encode())
    return digest


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)


def read(directory: Path) -> Stored:
    """The model in a directory, or a `ModelError` that says what is wrong with it."""
    try:
        card = json.loads((directory / "model.json").read_bytes())
        weights = (directory / "weights.safetensors").read_bytes()
        name, digest = card["name"], card["sha256"]
        kind, network = find(name)
        config = config_from_json(kind, card["config"])
    except OSError as error:
        raise ModelError(directory, f"not a model: {error.strerror} ({Path(error.filename).name})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(directory / "model.json", f"not a model card: {error}") from error
    if hashlib.sha256(weights).hexdigest() != digest:
        raise ModelError(
            directory / "weights.safetensors", "its SHA-256 is not the one on the card: damaged or foreign"
        )
    model = network(config)
    try:
        model.load_state_dict(require("safetensors.torch", "models").load(weights))
    except (RuntimeError, ValueError) as error:
        raise ModelError(directory / "weights.safetensors", f"weights do not fit model {name!r}: {error}") from error
    return Stored(name, model.eval(), card.get("notes", {}), digest)
