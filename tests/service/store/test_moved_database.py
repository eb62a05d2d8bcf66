"""A database whose file is moved, deleted or replaced while it is open: SQLite goes on in the old file."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from clustertwin.core.errors import InputError, OutputError
from clustertwin.service.store.database import Database
from clustertwin.service.store.tokens import Tokens


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    """By a copy, as a restore does."""
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def home_replaced(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old"))
    shutil.copytree(path.parent.with_name("old"), path.parent)


@pytest.mark.parametrize("change", [moved, Path.unlink, replaced, home_replaced])
def test_nothing_is_written_to_a_database_that_is_not_in_its_place(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    """A verdict was acknowledged, and lost when the service ended."""
    (tmp_path / "home").mkdir()
    database = Database(tmp_path / "home/state.sqlite")
    change(database.path)
    with pytest.raises(InputError, match="moved, deleted or replaced"):
        Tokens(database).add("ada", "vet", now_s=1.0)
    database.close()


def test_a_token_of_a_replaced_database_opens_nothing(tmp_path: Path) -> None:
    """`twin token remove` changed the new file, and the service went on asking the old one."""
    database = Database(tmp_path / "state.sqlite")
    token = Tokens(database, clock=lambda: 2.0).add("ada", "vet", now_s=1.0)
    replaced(database.path)
    with pytest.raises(InputError, match="moved, deleted or replaced"):
        Tokens(database, clock=lambda: 2.0).holder(token)
    database.close()


def test_a_full_disk_is_named_where_sqlite_calls_it_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(tmp_path / "state.sqlite")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(OutputError, match="disk I/O error; the disk is full; data"), database.transaction():
        raise sqlite3.OperationalError("disk I/O error")
    database.close()
