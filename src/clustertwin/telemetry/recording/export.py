"""Export a recording: Parquet or CSV with a row for each thread and second, or npz with windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.core.traces import Trace
from clustertwin.core.windows import cut
from clustertwin.telemetry.recording.reader import Recording

PIECE_S = 3600
SUFFIXES = (".parquet", ".csv", ".npz")
#: Of ratios in a text. A recording holds fewer.
DIGITS = 6


def export(recording: Recording, out: Path, length_s: int = 100) -> int:
    """Write the format of the suffix, without unknown seconds; the number of rows, or of windows for npz."""
    if out.suffix not in SUFFIXES:
        raise SettingsError(f"{out}: the name must end in one of {', '.join(SUFFIXES)}")
    files.refuse_existing(out)
    if out.suffix != ".npz":
        require("pyarrow", "arrow")
    with files.replacing(out) as file:
        return _windows(recording, file, length_s) if out.suffix == ".npz" else _rows(recording, file, out.suffix)


def _windows(recording: Recording, file: BinaryIO, length_s: int) -> int:
    windows = recording.windows(length_s)
    columns = {f.name: getattr(windows, f.name) for f in fields(windows) if f.name not in ("schema", "interval_s")}
    np.savez_compressed(file, channels=np.array(recording.schema.names), interval_s=recording.interval_s, **columns)
    return len(windows)


def _rows(recording: Recording, file: BinaryIO, suffix: str) -> int:
    from pyarrow import csv, parquet

    as_text = suffix == ".csv"
    schema = _schema(recording, as_text)
    rows = 0
    with csv.CSVWriter(file, schema) if as_text else parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _tables(recording, schema):
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _schema(recording: Recording, as_text: bool) -> Any:
    """Ratios are double in a text, in which the nearest float32 to .91 would be .90999997."""
    import pyarrow as pa

    ratio = pa.float64() if as_text else pa.float32()

    labels = ("job", "job_type", "anomaly")
    return pa.schema(
        [("time_s", pa.int64()), ("node", pa.string()), ("cpu", pa.int32())]
        + [(name, ratio) for name in (*recording.schema.names, *recording.node_schema.names)]
        + [(name, pa.string()) for name in labels]
    )


def _tables(recording: Recording, schema: Any) -> Iterator[Any]:
    import pyarrow as pa

    for node in recording.nodes:
        for start_s in range(recording.start_s, recording.end_s, PIECE_S):
            trace = recording.trace(node, start_s, min(start_s + PIECE_S, recording.end_s))
            columns = _columns(trace)
            for name in schema.names:
                if schema.field(name).type == pa.float64():
                    columns[name] = np.round(columns[name].astype(np.float64), DIGITS)
            yield pa.table(columns, schema=schema)


def _columns(trace: Trace) -> dict[str, Any]:
    """One row for each thread and known second: a window of one sample, with its labels. NaN is unknown."""
    seconds = cut(trace, length_s=trace.interval_s)
    ratios = seconds.values[:, 0]  # (n, channel)
    return {
        "time_s": seconds.start_s,
        "node": seconds.node,
        "cpu": seconds.cpu,
        **{name: np.ascontiguousarray(ratios[:, i]) for i, name in enumerate(trace.schema.names)},
        **_node_columns(trace, seconds.start_s),
        "job": seconds.job,
        "job_type": seconds.job_type,
        "anomaly": seconds.anomaly,
    }


def _node_columns(trace: Trace, start_s: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
    """Each node channel at these seconds."""
    if trace.node_channels is None:
        return {}
    rows = trace.node_channels.values[(start_s - trace.start_s) // trace.interval_s]
    return {name: np.ascontiguousarray(rows[:, i]) for i, name in enumerate(trace.node_channels.schema.names)}
