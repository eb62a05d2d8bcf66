"""Files that are replaced whole: who may read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from clustertwin.core import files


@pytest.mark.parametrize(("private", "mode"), [(False, 0o640), (True, 0o600)])
def test_a_new_file_has_the_mode_of_the_umask_unless_it_is_private(tmp_path: Path, private: bool, mode: int) -> None:
    before = os.umask(0o027)
    try:
        with files.replacing(tmp_path / "file", private=private) as out:
            out.write(b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_the_umask_of_the_process_is_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To set it and to set it back is a race: with two threads it stays 0, and everybody may write every later file."""
    changes: list[int] = []
    monkeypatch.setattr(os, "umask", lambda mask: changes.append(mask) or 0o022)
    files.write(tmp_path / "file", "new")
    assert changes == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
