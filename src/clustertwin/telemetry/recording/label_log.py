"""What ran where: job spans <-> labels.jsonl, one JSON object a line, synced line by line.

A later line for the same job, node, threads and start replaces the earlier one: a job may be labelled when it starts
(`end_s` null: still running) and again when it ends.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import orjson

from clustertwin.core import files
from clustertwin.core.errors import RecordingError
from clustertwin.core.traces import JobSpan


def append(path: Path, span: JobSpan) -> None:
    """The label is on disk when this returns."""
    files.append(path, _line(span))


def rewrite(path: Path, spans: list[JobSpan]) -> None:
    """The file holds these labels and no others."""
    files.write(path, b"".join(_line(span) for span in spans))


def read(path: Path) -> list[JobSpan]:
    """The labels, by start; none where there is no file."""
    try:
        return parse(path.read_bytes(), path)
    except FileNotFoundError:
        return []


def parse(data: bytes, where: object = "labels") -> list[JobSpan]:
    """The labels of whole lines; a last line without its end was torn by a crash and never acknowledged."""
    # One job may have several spans on a node, one for each set of threads that fared differently.
    spans: dict[tuple[str, str, tuple[int, ...], float], JobSpan] = {}
    whole = data[: data.rfind(b"\n") + 1]
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            row = orjson.loads(line)
            row["cpus"] = tuple(row["cpus"])
            row["end_s"] = math.inf if row["end_s"] is None else row["end_s"]
            span = JobSpan(**row)
            spans[span.job, span.node, span.cpus, span.start_s] = span
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise RecordingError(where, f"no label ({error})", number) from error
    return sorted(spans.values(), key=lambda span: (span.start_s, span.node, span.job))


def _line(span: JobSpan) -> bytes:
    row = asdict(span)
    row["end_s"] = None if math.isinf(span.end_s) else span.end_s
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
