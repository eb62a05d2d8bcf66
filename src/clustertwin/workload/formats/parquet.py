"""Parquet, our lossless format: the columns of the job table unchanged, everything else as JSON in the schema."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from clustertwin.core.errors import TraceError
from clustertwin.core.foreign_files import LATEST_S, open_regular, parse_json
from clustertwin.workload.formats.parsing.byte_stream import Progress
from clustertwin.workload.formats.parsing.findings import LogFindings
from clustertwin.workload.formats.parsing.validation import RawLog
from clustertwin.workload.jobs import COLUMNS, Jobs, Machine

KEY = b"clustertwin.jobs"
#: Rows for each byte of a file. Ours have fewer than one; equal values in a small file could fill the memory.
MOST_ROWS_PER_BYTE = 100


def read_raw(
    path: Path, findings: LogFindings, progress: Progress | None = None, timezone: str | None = None
) -> RawLog:
    """A file with at least `submit_s` and `run_s`. Files that we write also carry machine, names and header."""
    try:
        table = _table(path)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the name of a column may be no text
        raise TraceError(path, f"cannot read the file as Parquet: {error}") from error
    columns = {name: table.column(name).to_numpy().astype(np.float64) for name in table.column_names}
    try:
        facts = _facts(table)
    except (ValueError, TypeError, AttributeError) as error:
        raise TraceError(path, f"its metadata is not that of a job log: {error}") from error
    return RawLog(
        columns,
        np.arange(1, table.num_rows + 1),
        names=facts["names"],
        machine=facts["machine"],
        header=facts["header"],
        epoch_s=facts["epoch_s"],
        timezone=timezone or facts["timezone"],
        sorted_by_contract=True,
    )


def _table(path: Path) -> Any:
    """The columns of the job table, and no others. They are counted before they are read."""
    os.close(open_regular(path))
    with pq.ParquetFile(path, memory_map=True) as file:
        present = file.schema_arrow.names
        for needed in ("submit_s", "run_s"):
            if needed not in present:
                raise TraceError(path, f"column {needed!r} is missing; the file has {', '.join(present)[:500]}")
        if twice := next((name for name in COLUMNS if present.count(name) > 1), None):
            raise TraceError(path, f"column {twice!r} occurs twice")
        for name in COLUMNS:
            kind = file.schema_arrow.field(name).type if name in present else pa.float64()
            # Checked before the column is read: a long text that every row repeats would fill the memory.
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise TraceError(path, f"column {name!r} holds {kind}, not numbers")
        rows, size = file.metadata.num_rows, path.stat().st_size
        if rows > MOST_ROWS_PER_BYTE * size:
            raise TraceError(path, f"{rows:,} rows in {size:,} bytes: no job log is so regular")
        return file.read(columns=[name for name in COLUMNS if name in present])


def _facts(table: Any) -> dict[str, Any]:
    """What a file says beside its columns; ValueError, TypeError or AttributeError if it is something else."""
    plain = parse_json((table.schema.metadata or {}).get(KEY, b"{}"))
    names = {name: _texts(words, "names") for name, words in plain.get("names", {}).items()}
    machine, epoch_s = Machine(**plain.get("machine", {})), plain.get("epoch_s", 0.0)
    if type(machine.name) is not str or any(type(getattr(machine, name)) is not int for name in _COUNTS):
        raise ValueError("machine")
    if isinstance(epoch_s, bool) or not isinstance(epoch_s, int | float) or not abs(epoch_s) <= LATEST_S:
        raise ValueError(f"epoch_s {epoch_s!r:.60}")
    try:
        ZoneInfo(plain.get("timezone", "UTC"))
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"timezone {plain['timezone']!r:.60}") from error
    return {
        "names": names,
        "machine": machine,
        "epoch_s": float(epoch_s),
        "header": _texts(plain.get("header", []), "header"),
        "timezone": plain.get("timezone", "UTC"),
    }


_COUNTS = ("nodes", "cpus_per_node", "gpus_per_node")


def _texts(words: Any, name: str) -> tuple[str, ...]:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(name)
    return tuple(words)


def write(parts: Iterable[Jobs], out: BinaryIO) -> int:
    """Parts of one log, in order. Machine, names and header are those of the first part."""
    writer, jobs = None, 0
    for part in parts:
        if writer is None:
            facts = {"epoch_s": part.epoch_s, "machine": asdict(part.machine), "names": part.names,
                     "header": part.header, "timezone": part.timezone}  # fmt: skip
            table = pa.table(part.columns()).replace_schema_metadata({KEY: orjson.dumps(facts)})
            writer = pq.ParquetWriter(out, table.schema, compression="zstd")
        writer.write_table(pa.table(part.columns()).cast(writer.schema))
        jobs += len(part)
    if writer is not None:
        writer.close()
    return jobs
