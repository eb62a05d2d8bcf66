"""The CSV in which Argonne publishes the logs of Theta and ThetaGPU <-> a job table.

Columns are found by name. A file may have `interval` (seconds since the previous job) instead of `submit_time`; its
jobs then have no date.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats.parsing.byte_stream import Progress
from clustertwin.workload.formats.parsing.delimited import header_of, read_batches
from clustertwin.workload.formats.parsing.findings import LogFindings
from clustertwin.workload.formats.parsing.validation import RawLog
from clustertwin.workload.formats.parsing.word_codes import WordCodes, words_behind
from clustertwin.workload.jobs import Jobs, Machine, Status

#: our column -> the file's column
LABELS = {"id": "job", "submit_s": "submit_time", "wait_s": "wait_time", "run_s": "run_time", "request_s": "wall_time",
          "nodes": "node_num", "cpus": "cpu_num", "gpus": "gpu_num"}  # fmt: skip
STATUS = {"Pass": Status.COMPLETED, "Failed": Status.FAILED, "Killed": Status.CANCELLED}
#: User numbers up to this value are used as codes. Larger numbers are hashes and get small codes.
LARGEST_CODE = 1_000_000
#: Submit times below this value (before 1973) are seconds since the start of the log, not timestamps.
EARLIEST_DATE_S = 1e8


def read_raw(
    path: Path, findings: LogFindings, progress: Progress | None = None, timezone: str | None = None
) -> RawLog:
    """A file, plain or gzip -> raw columns, before validation."""
    names = header_of(path, ",")
    labels = dict(LABELS)
    if "submit_time" not in names:
        labels["submit_s"] = "interval"
    if "job" not in names:
        labels["id"] = "u_id"
    for needed in (labels["submit_s"], "run_time"):
        if needed not in names:
            raise TraceError(path, f"column {needed!r} is missing; the first line has {', '.join(names)}", 1)
    numeric = {ours: theirs for ours, theirs in labels.items() if theirs in names}
    words = {ours: theirs for ours, theirs in {"user": "user", "group": "project"}.items() if theirs in names}
    status = ["new_status"] if "new_status" in names else []
    codes = {name: WordCodes(frozenset({"", "0", "0.0"})) for name in words}
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (*numeric, *words, *(["status"] if status else []))}
    lines = []
    wanted = [*numeric.values(), *words.values(), *status]
    for batch in read_batches(path, ",", wanted, findings, progress):
        lines.append(batch.lines)
        for ours, theirs in numeric.items():
            parts[ours].append(batch.numbers(theirs, findings))
        for ours, theirs in words.items():
            parts[ours].append(codes[ours].encode(batch.words[theirs]))
        if status:
            parts["status"].append(batch.parsed("new_status", _status, findings))
    columns = {name: np.concatenate(arrays) if arrays else np.empty(0) for name, arrays in parts.items()}
    named = {name: _as_codes(columns, name, codes[name].words) for name in words}
    if "cpus" in columns:
        columns["cpus"][columns["cpus"] == 0] = -1  # the ThetaGPU log does not count cpus
    numbers = np.concatenate(lines) if lines else np.empty(0, np.int64)
    if labels["submit_s"] == "interval":
        columns["submit_s"] = np.cumsum(_forward(columns["submit_s"], numbers, findings))
    dated = np.nanmin(columns["submit_s"], initial=np.inf) >= EARLIEST_DATE_S
    return RawLog(columns, numbers, labels,
               names={name: entries for name, entries in named.items() if entries}, machine=_machine(columns),
               epoch_s=None if dated else 0.0, timezone=timezone or "UTC")  # fmt: skip


def _forward(interval_s: NDArray[Any], lines: NDArray[np.int64], findings: LogFindings) -> NDArray[Any]:
    """Seconds since the previous job. No job is submitted before the one that it follows."""
    for i in np.flatnonzero(interval_s < 0):
        findings.repair(int(lines[i]), f"interval {interval_s[i]:g} is negative", "treated as 0")
    return np.maximum(np.nan_to_num(interval_s), 0.0)


def _status(word: str) -> float:
    if word not in STATUS:
        raise ValueError(f"expected one of {', '.join(STATUS)}")
    return STATUS[word]


def _as_codes(columns: dict[str, NDArray[Any]], name: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Use small numbers as codes directly. Words and hashes keep their names, hashes without the `.0` of a float."""
    plain = tuple(word.removesuffix(".0") for word in words)
    if all(word.isdecimal() and float(word) <= LARGEST_CODE for word in plain):
        known = columns[name] >= 0
        columns[name][known] = np.array([int(word) for word in plain])[columns[name][known].astype(int)] if words else 0
        return ()
    return plain


def _machine(columns: dict[str, NDArray[Any]]) -> Machine:
    """The file does not describe the machine. A constant ratio of cpus to nodes gives the cpus per node."""
    if "cpus" not in columns or "nodes" not in columns:
        return Machine()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = columns["cpus"] / columns["nodes"]
    constant = len(ratio) > 0 and np.all(ratio == ratio[0]) and 1 <= ratio[0] < np.inf
    return Machine(cpus_per_node=int(ratio[0]) if constant else 0)


def write(parts: Iterable[Jobs], out: BinaryIO) -> int:
    """Parts of one log, in order -> CSV with submit_time (seconds since 1970, or since the start of the log)."""
    import pyarrow as pa
    from pyarrow import csv

    jobs = 0
    words = {int(status): word for word, status in STATUS.items()}
    for part in parts:
        table: dict[str, Any] = {"job": part.id, "user": words_behind(part, "user", "0"),
                                 "project": words_behind(part, "group", "0"),
                                 "gpu_num": part.gpus, "cpu_num": np.maximum(part.cpus, 0), "node_num": part.nodes,
                                 "submit_time": part.submit_s + part.epoch_s, "wait_time": part.wait_s,
                                 "run_time": part.run_s, "wall_time": part.request_s,
                                 "new_status": [words.get(int(code), "") for code in part.status]}  # fmt: skip
        options = csv.WriteOptions(include_header=jobs == 0, quoting_style="needed")
        csv.write_csv(pa.table({name: _column(values) for name, values in table.items()}), out, options)
        jobs += len(part)
    return jobs


def _column(values: Any) -> Any:
    """Write whole numbers without a decimal point."""
    integral = isinstance(values, np.ndarray) and np.all(values % 1 == 0)
    return values.astype(np.int64) if integral else values
