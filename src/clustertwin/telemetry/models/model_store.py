"""A model in a directory: weights.safetensors, and model.json with its name, config, hash and notes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.errors import InputError
from clustertwin.core.extras import require
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.contract import Autoencoder, config_from_json, config_to_json


class ModelError(InputError):
    """A directory that holds no model, or a model that is damaged or does not fit."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model and what its card says about it."""

    name: str  # of the architecture
    model: Autoencoder
    notes: dict[str, Any] = field(default_factory=dict)
    sha256: str = ""  # of the weights file


def save(directory: Path, name: str, model: Autoencoder, notes: dict[str, Any] | None = None) -> str:
    """Write the weights, then the card that names their hash; returns the hash."""
    tensors = {key: value.detach().contiguous() for key, value in model.state_dict().items()}
    weights: bytes = require("safetensors.torch", "models").save(tensors)
    digest = hashlib.sha256(weights).hexdigest()
    card = {"name": name, "config": config_to_json(model.config), "sha256": digest, "notes": notes or {}}
    files.make_directory(directory)
    files.write(directory / "weights.safetensors", weights)
    files.write(directory / "model.json", json.dumps(card, indent=1))
    return digest


def read(directory: Path) -> StoredModel:
    """The model in a directory, or a `ModelError` that says what is wrong with it."""
    try:
        card = json.loads((directory / "model.json").read_bytes())
        weights = (directory / "weights.safetensors").read_bytes()
        name, digest = card["name"], card["sha256"]
        kind, network = find(name)
        config = config_from_json(kind, card["config"])
    except OSError as error:
        raise ModelError(directory, f"not a model: {Path(error.filename).name}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(directory / "model.json", f"not a model card: {error}") from error
    if hashlib.sha256(weights).hexdigest() != digest:
        raise ModelError(
            directory / "weights.safetensors",
            "the SHA-256 differs from the one in model.json: the file is damaged or belongs to another model",
        )
    model = network(config)
    try:
        model.load_state_dict(require("safetensors.torch", "models").load(weights))
    except (RuntimeError, ValueError) as error:
        raise ModelError(
            directory / "weights.safetensors", f"the weights do not fit the model {name!r}: {error}"
        ) from error
    return StoredModel(name, model.eval(), card.get("notes", {}), digest)
