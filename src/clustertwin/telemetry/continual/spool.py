"""Records on their way to the registry: written beside the night, sent when it answers, in order and once.

The registry is a book of what happened and never the reason why a night fails: what it does not take today waits in
home/spool and is sent tomorrow.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from clustertwin.core.errors import InputError, SourceError
from clustertwin.telemetry.continual.registry import Record
from clustertwin.telemetry.recording import durable


class Book(Protocol):
    """Takes a record for good, or raises SourceError; taking it twice is taking it once."""

    def enter(self, record: Record) -> str: ...


def put(home: Path, record: Record) -> None:
    directory = home / "spool"
    durable.make_directory(directory)
    durable.replace(directory / f"{record.name}.json", json.dumps(asdict(record), indent=1).encode())


def waiting(home: Path) -> list[Record]:
    """Oldest first."""
    return [_read(path) for path in sorted((home / "spool").glob("[!.]*.json"))]


def sync(home: Path, book: Book) -> tuple[int, str]:
    """Send what waits: how many were taken, and why the rest was not."""
    sent = 0
    for record in waiting(home):
        try:
            book.enter(record)
        except SourceError as error:
            return sent, str(error)
        (home / "spool" / f"{record.name}.json").unlink(missing_ok=True)
        sent += 1
    return sent, ""


def _read(path: Path) -> Record:
    try:
        return Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(path, f"not a record of a night: {error}; remove it to go on without it") from error
