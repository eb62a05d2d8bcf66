"""Files that are replaced whole: who may read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from clustertwin.core import files
from clustertwin.core.errors import OutputError


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


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/proc/self/fd/1")])
def test_a_pipe_or_a_standard_stream_is_not_replaced_by_a_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """With --force, root replaced /dev/null for every process of the machine."""
    path = tmp_path / "out"
    make(path)
    before = path.lstat()
    with pytest.raises(OutputError, match="a device or a pipe"):
        files.write(path, "text")
    assert path.lstat() == before
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
