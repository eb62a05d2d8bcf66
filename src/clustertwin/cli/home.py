"""The option that names the service's directory, the same for every command that reads it, and what lies there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.core.errors import SettingsError

if TYPE_CHECKING:
    from clustertwin.service.store.event_store import Store

Home = typer.Option("~/.local/share/clustertwin", "--home", envvar="CLUSTERTWIN_HOME", help="The service's directory.")


def open_store(home: Path, make: bool = False) -> Store:
    """What the service remembers there; unless it is to be made, it must exist."""
    from clustertwin.service.store.event_store import Store

    path = home.expanduser() / "state.sqlite"
    if not make and not path.exists():
        raise SettingsError(f"{path.parent}: no service has run here; start one with `twin up`, or name its --home")
    return Store(path)


def recording_of(home: Path) -> Path:
    """Where the service keeps the seconds of its own host; it must exist."""
    path = home.expanduser() / "recording"
    if not path.is_dir():
        raise SettingsError(f"{path}: nothing was recorded here; `twin up` does it, or name a --recording")
    return path
