"""A training run on disk: arrays and plain values <-> one safetensors file, replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from clustertwin.core.errors import InputError
from clustertwin.core.extras import require


def save(path: Path, arrays: dict[str, NDArray[Any]], values: dict[str, Any]) -> None:
    """Write a checkpoint. A run that is killed meanwhile leaves the previous one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    require("safetensors.numpy", "rl").save_file(plain, beside, metadata={"clustertwin": text})
    os.replace(beside, path)


def read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and values of a checkpoint."""
    safetensors = require("safetensors", "rl")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            values = orjson.loads(file.metadata()["clustertwin"])
            return {name: file.get_tensor(name) for name in file.keys()}, values  # noqa: SIM118
    except (OSError, KeyError, TypeError, safetensors.SafetensorError) as reason:
        raise InputError(path, f"not a checkpoint of a training run: {reason}") from reason
