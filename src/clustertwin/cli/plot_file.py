"""Files of plots: a path -> whether a plot can be written there, and a figure or a page in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.errors import SettingsError

SUFFIXES = (".png", ".svg", ".pdf", ".html")


def check_plot(out: Path, force: bool) -> None:
    """Refuse a suffix that no plot has, and a file that exists, before anything is computed."""
    if out.suffix not in SUFFIXES:
        raise SettingsError(f"{out}: a plot is written as {', '.join(SUFFIXES)}")
    files.refuse_existing(out, force)


def write_plot(out: Path, page: Callable[[], str], figure: Callable[[], Any]) -> None:
    """Write the page if the suffix is .html, otherwise the figure."""
    if out.suffix == ".html":
        files.write(out, page())
        return
    with files.replacing(out) as file:
        figure().savefig(file, format=out.suffix.removeprefix("."), dpi=120, facecolor="white")
