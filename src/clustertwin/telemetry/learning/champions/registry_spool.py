"""Records on their way to the registry: written beside the night, sent when it answers, in order and once.

The registry is a book of what happened and never the reason why a night fails: what it does not take today waits in
home/spool and is sent tomorrow. Who serves needs no spool: champion.json knows, and every sending ends with its word,
so that the registry follows a night, a promotion by hand and a rollback alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from clustertwin.core import files
from clustertwin.core.errors import InputError, SourceError, TwinError
from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.learning.champions.fencing_lock import held
from clustertwin.telemetry.learning.champions.registry import Record


class Book(Protocol):
    """Takes what it is told for good, or raises SourceError; being told twice is being told once."""

    def enter(self, record: Record) -> str: ...

    def serve(self, version: str, directory: Path, sha256: str) -> None: ...


def put(home: Path, record: Record) -> None:
    directory = home / "spool"
    files.make_directory(directory)
    files.write(directory / f"{record.name}.json", json.dumps(asdict(record), indent=1).encode())


def waiting(home: Path) -> list[Record]:
    """Oldest first."""
    return [_read(path) for path in sorted((home / "spool").glob("[!.]*.json"))]


def sync(home: Path, book: Book) -> tuple[int, str]:
    """Send what waits, and who serves: how many records were taken, and why the rest was not.

    One at a time: of two promotions in a row, the second has the last word.
    """
    sent = 0
    with held(home / "spool.lock"):
        try:
            for record in waiting(home):
                book.enter(record)
                (home / "spool" / f"{record.name}.json").unlink(missing_ok=True)
                sent += 1
            now = champion_store.read_champion(home)
            if now is not None:
                book.serve(now.version, home / champion_store.MODELS / now.version, now.sha256)
        except SourceError as error:
            return sent, str(error)
    return sent, ""


def tell(home: Path, open_book: Callable[[], Book]) -> str:
    """Open the registry and send, and say what became of it; one that is down costs nothing but these words."""
    try:
        sent, left = sync(home, open_book())
    except TwinError as error:
        sent, left = 0, str(error)
    said = f"{sent} records sent" if sent or left else "told who serves"
    return f"{said}; the rest waits: {left}" if left else said


def _read(path: Path) -> Record:
    try:
        return Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(path, f"not a record of a night: {error}; remove it to go on without it") from error
