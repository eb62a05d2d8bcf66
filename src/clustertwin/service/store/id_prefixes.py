"""Ids as people type them: the beginning of an id -> the id, if only one begins so."""

from __future__ import annotations

from typing import Literal

from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.service.store.database import Database

_SHOWN = 3


def find_id(
    database: Database, table: Literal["events", "actions"], prefix: str, missing: type[TwinError] = SettingsError
) -> str:
    """The id that is `prefix` or is the only one that begins with it. `missing` is raised if there is none."""
    rows = database.rows(
        f"SELECT id FROM {table} WHERE id = ? OR (? != '' AND substr(id, 1, ?) = ?) ORDER BY id != ?, id LIMIT ?",
        (prefix, prefix, len(prefix), prefix, prefix, _SHOWN + 1),
    )
    ids, noun = [str(row["id"]) for row in rows], table.removesuffix("s")
    if not ids:
        raise missing(f"there is no {noun} {prefix!r}")
    if len(ids) > 1 and ids[0] != prefix:
        more = ", …" * (len(ids) > _SHOWN)
        raise SettingsError(f"more than one {noun} begins with {prefix!r}: {', '.join(ids[:_SHOWN])}{more}")
    return ids[0]
