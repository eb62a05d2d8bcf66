"""Moments on disk: one safetensors file with ratios in half precision (a step of 1/2048) and names in its header."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin.core import files
from clustertwin.core.channels import Schema
from clustertwin.core.errors import RecordingError
from clustertwin.core.extras import require
from clustertwin.core.traces import NodeChannels
from clustertwin.telemetry.moments.moment import JobMoment, Moment

_ARRAYS = ("values", "valid", "node", "cpu", "job", "age_s")


def write_moments(path: Path, moments: Sequence[Moment]) -> None:
    """Write the moments to a file, or leave the file as it was."""
    tensors: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    schema = moments[0].schema if moments else Schema(())
    for i, moment in enumerate(moments):
        for name in _ARRAYS:
            array = getattr(moment, name)
            tensors[f"{i}.{name}"] = np.ascontiguousarray(array.astype(np.float16) if name == "values" else array)
        rows.append({"end_s": int(moment.end_s), "nodes": moment.nodes, "jobs": moment.jobs})
        if moment.schema != schema:
            rows[-1]["schema"] = moment.schema.to_json()
        if (of_nodes := moment.node_channels) is not None:
            tensors[f"{i}.node_channels"] = of_nodes.values.astype(np.float16)
            rows[-1]["node_channels"] = of_nodes.schema.to_json()
        if (of_jobs := moment.job_channels) is not None:
            tensors[f"{i}.job_channels"] = of_jobs.values.astype(np.float16)
            tensors[f"{i}.job_channels.node"] = np.ascontiguousarray(of_jobs.node)
            rows[-1]["job_channels"] = {"schema": of_jobs.schema.to_json(), "jobs": of_jobs.jobs}
    header = {"moments": json.dumps(rows), "schema": json.dumps(schema.to_json())}
    files.make_directory(path.parent)
    files.write(path, require("safetensors.numpy", "models").save(tensors, header))


def read_moments(path: Path) -> tuple[Moment, ...]:
    """The moments of a file, or a `RecordingError` that says what is wrong with it."""
    try:
        with require("safetensors", "models").safe_open(path, "numpy") as file:
            header = file.metadata()
            schema = json.loads(header["schema"])  # of each moment that has none of its own
            return tuple(
                Moment(
                    end_s=row["end_s"],
                    schema=Schema.from_json(row.get("schema", schema)),
                    values=file.get_tensor(f"{i}.values").astype(np.float32),
                    nodes=tuple(row["nodes"]),
                    jobs=tuple(row["jobs"]),
                    node_channels=_node_channels(file, i, row),
                    job_channels=_job_channels(file, i, row),
                    **{name: file.get_tensor(f"{i}.{name}") for name in _ARRAYS if name != "values"},
                )
                for i, row in enumerate(json.loads(header["moments"]))
            )
    except FileNotFoundError as error:
        raise RecordingError(path, "the file of moments does not exist") from error
    except Exception as error:  # safetensors raises its own class, which is not a ValueError
        raise RecordingError(path, f"not a file of moments: {error}") from error


def _node_channels(file: Any, i: int, row: dict[str, Any]) -> NodeChannels | None:
    """None in files of releases that did not keep them."""
    if "node_channels" not in row:
        return None
    return NodeChannels(
        Schema.from_json(row["node_channels"]), file.get_tensor(f"{i}.node_channels").astype(np.float32)
    )


def _job_channels(file: Any, i: int, row: dict[str, Any]) -> JobMoment | None:
    """None in files of releases that did not keep them."""
    if "job_channels" not in row:
        return None
    return JobMoment(
        Schema.from_json(row["job_channels"]["schema"]),
        tuple(row["job_channels"]["jobs"]),
        file.get_tensor(f"{i}.job_channels.node"),
        file.get_tensor(f"{i}.job_channels").astype(np.float32),
    )
