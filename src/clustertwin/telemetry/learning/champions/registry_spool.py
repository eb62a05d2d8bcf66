"""Records on their way to the registry: home/spool/<day>.json, sent in order when the registry answers.

The registry only documents what happened. If it is down, the night goes on, the record stays in the spool and is sent
after the next night. The version in service needs no spool: every `sync` ends by reading champion.json and setting the
registry's champion to it, whether a night, a promotion by hand or a rollback changed it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from clustertwin.core import files
from clustertwin.core.errors import InputError, SourceError, TwinError
from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.learning.champions.fencing_lock import file_lock
from clustertwin.telemetry.learning.champions.registry import NightRecord, Registry, night_record_of
from clustertwin.telemetry.learning.champions.version_store import DIRECTORY as MODELS


def add(home: Path, record: NightRecord) -> None:
    files.make_directory(home / "spool")
    files.write(_file(home, record), json.dumps(asdict(record), indent=1))


def waiting(home: Path) -> list[NightRecord]:
    """Records that the registry does not have yet, oldest first."""
    return [_read(path) for path in sorted((home / "spool").glob("[!.]*.json"))]


def sync(home: Path, registry: Registry) -> tuple[int, str]:
    """Send the waiting records and the version in service -> how many records were sent, and the error that stopped it.

    The lock serialises two callers, so that the registry ends with the newest champion.
    """
    sent = 0
    with file_lock(home / "spool.lock"):
        try:
            for record in waiting(home):
                registry.add_night(record)
                _file(home, record).unlink(missing_ok=True)
                sent += 1
            champion = champion_store.read_champion(home)
            if champion is not None:
                registry.set_champion(champion.version, home / MODELS / champion.version, champion.sha256)
        except SourceError as error:
            return sent, str(error)
    return sent, ""


def open_and_sync(home: Path, open_registry: Callable[[], Registry]) -> str:
    """Open the registry and send everything; returns what happened. Errors of the registry are only reported."""
    try:
        sent, error_text = sync(home, open_registry())
    except TwinError as error:
        sent, error_text = 0, str(error)
    if error_text:
        return f"{_records(sent)} sent; the rest waits: {error_text}"
    return f"{_records(sent)} sent" if sent else "champion is up to date"


def _records(count: int) -> str:
    return f"{count} record" if count == 1 else f"{count} records"


def _file(home: Path, record: NightRecord) -> Path:
    return home / "spool" / f"{record.name}.json"


def _read(path: Path) -> NightRecord:
    try:
        return night_record_of(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(path, f"not a record of a night: {error}; remove it to send the others") from error
