"""Moments on disk: one safetensors file, ratios in half precision (a step of 1/2048), names in its header."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustertwin.core import files
from clustertwin.core.channels import Schema
from clustertwin.core.errors import RecordingError
from clustertwin.core.extras import require
from clustertwin.telemetry.moments.moment import Moment

_ARRAYS = ("values", "valid", "node", "cpu", "job", "age_s")


def write_moments(path: Path, taken: Sequence[Moment]) -> None:
    """Whole or not at all."""
    tensors, names = {}, []
    for i, moment in enumerate(taken):
        for name in _ARRAYS:
            array = getattr(moment, name)
            tensors[f"{i}.{name}"] = np.ascontiguousarray(array.astype(np.float16) if name == "values" else array)
        names.append({"end_s": int(moment.end_s), "nodes": moment.nodes, "jobs": moment.jobs})
    schema = taken[0].schema.to_json() if taken else []
    header = {"moments": json.dumps(names), "schema": json.dumps(schema)}
    files.make_directory(path.parent)
    files.write(path, require("safetensors.numpy", "models").save(tensors, header))


def read_moments(path: Path) -> tuple[Moment, ...]:
    """The moments of a file, or a `RecordingError` that says what is wrong with it."""
    try:
        with require("safetensors", "models").safe_open(path, "numpy") as file:
            header = file.metadata()
            schema = Schema.from_json(json.loads(header["schema"]))
            return tuple(
                Moment(
                    end_s=row["end_s"],
                    schema=schema,
                    values=file.get_tensor(f"{i}.values").astype(np.float32),
                    nodes=tuple(row["nodes"]),
                    jobs=tuple(row["jobs"]),
                    **{name: file.get_tensor(f"{i}.{name}") for name in _ARRAYS if name != "values"},
                )
                for i, row in enumerate(json.loads(header["moments"]))
            )
    except FileNotFoundError as error:
        raise RecordingError(path, "no moments here") from error
    except Exception as error:  # safetensors raises a class of its own, which is no ValueError
        raise RecordingError(path, f"not a file of moments: {error}") from error
