"""The labels of a recording: job spans <-> labels.jsonl, one JSON object in each line, synced line by line.

A later line for the same job, node, threads and start replaces the earlier one. So a job can be labelled when it starts
(`end_s` is null while it runs) and again when it ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from clustertwin.core import files
from clustertwin.core.errors import RecordingError
from clustertwin.core.foreign_files import read_recorded
from clustertwin.core.formatting import visible
from clustertwin.core.traces import JobSpan

#: A label has about 200 bytes. A file that is longer is not read.
MOST_BYTES = 1 << 28
#: Bytes that a recorder keeps: the older half of a longer file is dropped.
MOST_KEPT_BYTES = 1 << 27
#: What pages, messages and commands show. A recording may come from elsewhere.
_SHOWN = ("job", "job_type", "owner", "anomaly", "name", "user", "account")


def append(path: Path, spans: Iterable[JobSpan]) -> None:
    """The labels are on disk when this returns. A file that is too long loses its oldest lines."""
    files.append(path, b"".join(map(_line, spans)))
    shorten(path)


def shorten(path: Path) -> None:
    """Drop the oldest lines of a file that is too long."""
    size = path.stat().st_size if path.is_file() else 0
    if size > MOST_KEPT_BYTES:
        with path.open("rb") as file:
            file.seek(size - MOST_KEPT_BYTES // 2)
            newest = file.read()
        files.write(path, newest[newest.find(b"\n") + 1 :])


def drop_before(path: Path, before_s: float) -> None:
    """Remove the lines at the beginning of the file whose jobs had ended by this second.

    Lines are in the order of their events, so the first line of a later event ends the search: a long file is not
    parsed as a whole. The lines of jobs that still run stay.
    """
    data = read_recorded(path, MOST_BYTES)
    if data is None:
        return
    running: dict[tuple[Any, ...], bytes] = {}
    at = 0
    while end := data.find(b"\n", at) + 1:
        try:
            row = orjson.loads(data[at:end])
            job = row["job"], row["node"], *row["cpus"], row["start_s"]
            if (row["start_s"] if row["end_s"] is None else row["end_s"]) > before_s:
                break
        except (ValueError, KeyError, TypeError) as error:
            raise RecordingError(path, f"not a label ({error})") from error
        running.pop(job, None)
        if row["end_s"] is None:
            running[job] = data[at:end]
        at = end
    kept = b"".join(running.values())
    if len(kept) < at:
        files.write(path, kept + data[at:])


def rewrite(path: Path, spans: list[JobSpan]) -> None:
    """Replace all labels by these."""
    files.write(path, b"".join(_line(span) for span in spans))


def read(path: Path) -> list[JobSpan]:
    """The labels, ordered by start; empty if there is no file."""
    data = read_recorded(path, MOST_BYTES)
    return [] if data is None else parse(data, path)


def parse(data: bytes, where: object = "labels") -> list[JobSpan]:
    """The labels of complete lines. A last line without a newline was interrupted by a crash and does not count."""
    # A job may have several spans on a node, one for each set of threads with labels of their own.
    spans: dict[tuple[str, str, tuple[int, ...], float], JobSpan] = {}
    complete = data[: data.rfind(b"\n") + 1]
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            row = orjson.loads(line)
            row["cpus"] = tuple(row["cpus"])
            row["end_s"] = math.inf if row["end_s"] is None else row["end_s"]
            span = JobSpan(**row)
            _check(span)
            shown: dict[str, Any] = {name: visible(getattr(span, name)) for name in _SHOWN}
            span = replace(span, **shown)
            spans[span.job, span.node, span.cpus, span.start_s] = span
        except (ValueError, KeyError, TypeError) as error:
            raise RecordingError(where, f"not a label ({error})", number) from error
    return sorted(spans.values(), key=lambda span: (span.start_s, span.node, span.job))


def _check(span: JobSpan) -> None:
    """Raise `ValueError` if a value has another type than it should have."""
    texts = (span.node, *(getattr(span, name) for name in _SHOWN))
    seconds = (span.start_s, span.end_s, *([] if span.onset_s is None else [span.onset_s]))
    if not all(type(text) is str for text in texts):
        raise ValueError("a name is not a text")
    if not all(type(second) in (int, float) for second in seconds):
        raise ValueError("a time is not a number")
    if not all(type(cpu) is int and cpu >= 0 for cpu in span.cpus):
        raise ValueError("a cpu is not a whole number")


def _line(span: JobSpan) -> bytes:
    row = asdict(span)
    if not span.account:
        del row["account"]  # older releases read labels without it
    row["end_s"] = None if math.isinf(span.end_s) else span.end_s
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
