"""`twin maintenance`: windows in which nodes are not scored. A running service is not needed."""

from __future__ import annotations

import getpass
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, print_json, print_table
from clustertwin.core.formatting import local_time

if TYPE_CHECKING:
    from clustertwin.service.store.quiet_periods import MaintenanceWindow

app = group("Maintenance windows: the nodes are not scored, and models do not learn from them.")


@app.command("list")
def list_(home: Path = Home, json: bool = Json) -> None:
    """List windows that have not ended."""
    _print(open_store(home).quiet_periods.maintenance(time.time()), json)


@app.command()
def add(
    nodes: list[str] = typer.Argument(help="Names of nodes, or patterns such as 'n0*'."),
    lasts: str = typer.Option("2h", "--for", help="Duration, such as 30min, 2h or 3d."),
    begins: datetime | None = typer.Option(None, "--from", help="Local time at which the window begins; default: now."),
    reason: str = typer.Option("", help="A reason that is shown with the window."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Add a maintenance window."""
    from clustertwin.core.durations import parse_duration
    from clustertwin.core.errors import SettingsError
    from clustertwin.service.store.quiet_periods import MaintenanceWindow

    now_s = time.time()
    try:
        start_s = begins.timestamp() if begins else now_s
    except (ValueError, OverflowError):
        raise SettingsError(f"--from {begins}: this time is beyond the calendar") from None
    window = MaintenanceWindow(tuple(nodes), start_s, start_s + parse_duration(lasts), reason, getpass.getuser())
    _print([open_store(home).quiet_periods.add_maintenance(window, now_s)], json)


@app.command()
def end(number: int = typer.Argument(help="The number of the window."), home: Path = Home, json: bool = Json) -> None:
    """End a window now, or cancel one that has not begun."""
    from clustertwin.core.errors import SettingsError

    if not open_store(home).quiet_periods.end_maintenance(number, getpass.getuser(), time.time()):
        raise SettingsError(f"there is no maintenance window {number}, or it has ended")
    if json:
        print_json({"ended": number})


def _print(windows: list[MaintenanceWindow], json: bool) -> None:
    if json:
        print_json([asdict(window) for window in windows])
        return
    rows = [
        (window.id, " ".join(window.nodes), *map(local_time, (window.start_s, window.end_s)), window.reason, window.who)
        for window in windows
    ]
    columns = ("number", "nodes", "from", "until", "reason", "who")
    print_table("", columns, rows, ("number", "nodes"), instead="No maintenance windows.")
