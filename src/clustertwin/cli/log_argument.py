"""The argument that names a job log: a path, or `-` for standard input -> the path of a file that can be read twice."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

STANDARD_INPUT = Path("-")


def log_argument(help: str) -> Any:
    """An argument for a job log. Its reader reports a missing file, so that every command words it alike."""
    return typer.Argument(help=f"{help}; - reads standard input.", callback=_as_file)


def _as_file(context: typer.Context, path: Path) -> Path:
    """Copy standard input to a file until the command ends: the format is detected before the log is read."""
    if path != STANDARD_INPUT or context.resilient_parsing:
        return path
    directory = tempfile.TemporaryDirectory(prefix="twin-")
    context.call_on_close(directory.cleanup)
    copy = Path(directory.name, "standard-input")
    with copy.open("wb") as out:
        shutil.copyfileobj(sys.stdin.buffer, out)
    return copy
