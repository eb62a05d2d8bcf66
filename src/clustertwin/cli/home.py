"""The --home option, the same for every command that reads the service's directory, and the files in that directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import expanded
from clustertwin.service.store.home_format import DEFAULT_HOME, create_home, is_home, open_home

if TYPE_CHECKING:
    from clustertwin.service.store.event_store import Store


def _checked(context: typer.Context, home: Path) -> Path:
    """Check the format of the home before the command runs."""
    return home if context.resilient_parsing else open_home(expanded(home))


Home = typer.Option(
    DEFAULT_HOME, "--home", envvar="CLUSTERTWIN_HOME", callback=_checked, help="The home directory of the service."
)


def existing_home(home: Path) -> Path:
    """The directory of a home. A wrong --home must not become another one."""
    home = expanded(home)
    if not is_home(home):
        raise SettingsError(f"{home}: no service has run here; start one with `twin up`, or set --home")
    return home


def open_store(home: Path, make: bool = False) -> Store:
    """The store of a home. Unless `make` is set, it must exist."""
    from clustertwin.service.store.event_store import Store

    home = expanded(home)
    path = home / "state.sqlite"
    if make:
        create_home(home)
    elif not path.exists():
        raise SettingsError(f"{home}: no service has run here; start one with `twin up`, or set --home")
    return Store(path)


def recording_of(home: Path) -> Path:
    """The recording that the service makes of its own host or of its cluster. It must exist."""
    path = expanded(home) / "recording"
    if not path.is_dir():
        raise SettingsError(
            f"{path}: there is no recording; `twin up` makes one, recording.cluster makes one of a cluster, and "
            "--recording names another"
        )
    return path
