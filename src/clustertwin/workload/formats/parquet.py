"""Parquet, our lossless format: the columns of the job table unchanged, everything else as JSON in the schema."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats.parsing.byte_stream import Progress
from clustertwin.workload.formats.parsing.findings import LogFindings
from clustertwin.workload.formats.parsing.validation import RawLog
from clustertwin.workload.jobs import COLUMNS, Jobs, Machine

KEY = b"clustertwin.jobs"


def read_raw(
    path: Path, findings: LogFindings, progress: Progress | None = None, timezone: str | None = None
) -> RawLog:
    """A file with at least `submit_s` and `run_s`. Files that we write also carry machine, names and header."""
    try:
        table = pq.read_table(path, memory_map=True)
    except (OSError, pa.ArrowInvalid) as error:
        raise TraceError(path, f"cannot read the file as Parquet: {error}") from error
    for needed in ("submit_s", "run_s"):
        if needed not in table.column_names:
            raise TraceError(path, f"column {needed!r} is missing; the file has {', '.join(table.column_names)}")
    columns = {name: _floats(path, table, name) for name in COLUMNS if name in table.column_names}
    facts: dict[str, Any] = orjson.loads((table.schema.metadata or {}).get(KEY, b"{}"))
    return RawLog(
        columns,
        np.arange(1, table.num_rows + 1),
        names={name: tuple(words) for name, words in facts.get("names", {}).items()},
        machine=Machine(**facts.get("machine", {})),
        header=tuple(facts.get("header", ())),
        epoch_s=facts.get("epoch_s", 0.0),
        timezone=timezone or facts.get("timezone", "UTC"),
        sorted_by_contract=True,
    )


def _floats(path: Path, table: Any, name: str) -> Any:
    column = table.column(name)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise TraceError(path, f"column {name!r} holds {column.type}, not numbers")
    return column.to_numpy().astype(np.float64)


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
