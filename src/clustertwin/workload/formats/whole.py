"""Files that appear whole or not at all: write beside the target, then rename over it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from clustertwin.core.errors import OutputError


def refuse_existing(path: Path, force: bool = False) -> None:
    """Call it before long work, so that nobody waits for a refusal."""
    if path.exists() and not force:
        raise OutputError(f"{path} is already there; --force overwrites it")


@contextmanager
def writing(path: Path, force: bool = False) -> Iterator[BinaryIO]:
    """A binary file to write to; it becomes `path` only if the block ends well."""
    refuse_existing(path, force)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}") from error
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        # mkstemp makes a private file; a log is written like any other output.
        draft.chmod(0o666 & ~_umask())
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
