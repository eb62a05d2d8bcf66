"""A model in a directory: weights.safetensors, and model.json with its name, config, hash and notes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.errors import InputError, SettingsError, describe
from clustertwin.core.extras import require
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.telemetry.models import MODELS, find
from clustertwin.telemetry.models.contract import Autoencoder, Shape, config_from_json, config_to_json

#: Budgets of the two files. The bundled model has 1 KB and 0.5 MB.
MOST_CARD_BYTES, MOST_WEIGHTS_BYTES = 1 << 24, 1 << 29
#: The largest size of a layer, length of a window or number of blocks.
LARGEST = 1 << 20


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
    """The model in a directory, or a `ModelError` that says what is wrong with it.

    Files beside the model, such as the tables of a detector, are checked too: each must be one that can be parsed.
    """
    try:
        card = parse_json(read_regular(directory / "model.json", MOST_CARD_BYTES))
        weights = read_regular(directory / "weights.safetensors", MOST_WEIGHTS_BYTES)
        name, digest, notes = card["name"], card["sha256"], card.get("notes", {})
        kind, network = find(name)
        config = config_from_json(kind, card["config"])
        _check_config(config)
    except OSError as error:
        raise ModelError(directory, f"not a model: {Path(error.filename).name}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, SettingsError) as error:
        raise ModelError(directory / "model.json", f"not a model card: {error}") from error
    if not isinstance(notes, dict):
        raise ModelError(directory / "model.json", "not a model card: its notes are not a table")
    if hashlib.sha256(weights).hexdigest() != digest:
        raise ModelError(
            directory / "weights.safetensors",
            "the SHA-256 differs from the one in model.json: the file is damaged or belongs to another model",
        )
    load = require("safetensors.torch", "models").load
    try:
        tensors = load(weights)
        if name in MODELS:  # a plug-in may not support tensors without memory
            _check_tensors(network, config, tensors)
        model = network(config)
        model.load_state_dict(tensors)
    except Exception as error:  # a file with a right hash may still hold anything
        raise ModelError(
            directory / "weights.safetensors", f"the weights do not fit the model {name!r}: {describe(error)}"
        ) from error
    _check_others(directory)
    return StoredModel(name, model.eval(), notes, digest)


def _check_others(directory: Path) -> None:
    """Raise `ModelError` for a file beside the model that cannot be read, or that no parser may be given."""
    load = require("safetensors.numpy", "models").load
    for path in sorted({*directory.glob("*.json"), *directory.glob("*.safetensors")}):
        try:
            if path.name == "weights.safetensors":
                continue
            if path.suffix == ".json":
                parse_json(read_regular(path, MOST_CARD_BYTES))
            else:
                load(read_regular(path, MOST_WEIGHTS_BYTES))
        except OSError as error:
            raise ModelError(path, f"cannot be read: {error.strerror}") from error
        except Exception as error:  # a file with a right hash may still hold anything
            raise ModelError(path, f"damaged: {describe(error)}") from error


def _check_config(config: Any) -> None:
    """Raise `ValueError` for a number of another type than its default, or far beyond any model."""
    numbers = [(each.name, getattr(config, each.name), each.default) for each in fields(config)]
    for name, value, default in [*numbers, ("length", config.shape.length, Shape().length)]:
        if type(default) is int and not (type(value) is int and 0 < value <= LARGEST):
            raise ValueError(f"{name} is not a whole number from 1 to {LARGEST:,}")
        if type(default) is float and not (type(value) in (int, float) and math.isfinite(value)):
            raise ValueError(f"{name} is not a finite number")


def _check_tensors(network: type[Autoencoder], config: Any, tensors: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless the tensors are those of this model, before any memory is allocated for it."""
    torch = require("torch", "models")
    with torch.device("meta"):
        expected = network(config).state_dict()
    if missing := sorted(expected.keys() ^ tensors.keys()):
        raise ValueError(f"the tensor {missing[0]} is missing or does not belong to it")
    for key, tensor in tensors.items():
        if tensor.shape != expected[key].shape or tensor.dtype != expected[key].dtype:
            wanted = f"{tuple(expected[key].shape)} {expected[key].dtype}"
            raise ValueError(f"{key} is {tuple(tensor.shape)} {tensor.dtype} instead of {wanted}")
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{key} has a number that is not finite")
