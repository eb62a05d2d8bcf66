"""Walk a command: a group -> the words and the command of each of its leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command
