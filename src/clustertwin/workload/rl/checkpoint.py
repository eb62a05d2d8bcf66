"""A training run on disk: arrays and plain values <-> one safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.errors import InputError
from clustertwin.core.extras import require


def save(path: Path, arrays: dict[str, NDArray[Any]], values: dict[str, Any]) -> None:
    """Write a checkpoint. A run that is killed while it writes keeps the previous one."""
    files.make_directory(path.parent)
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    metadata = {"clustertwin": orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY).decode()}
    files.write(path, require("safetensors.numpy", "rl").save(tensors, metadata=metadata))


def read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and values of a checkpoint."""
    safetensors = require("safetensors", "rl")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            values = orjson.loads(file.metadata()["clustertwin"])
            return {name: file.get_tensor(name) for name in file.keys()}, values  # noqa: SIM118
    except (OSError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise InputError(path, f"not a checkpoint of a training run: {error}") from error
