"""`twin maintenance`: nodes that are not judged for a time; beside a running service or without one."""

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

if TYPE_CHECKING:
    from clustertwin.service.store.quiet_times import Maintenance

app = group("Maintenance: for a time, what some nodes do is neither judged nor learnt from.")


@app.command("list")
def list_(home: Path = Home, json: bool = Json) -> None:
    """Windows that hold or are to come."""
    _print(open_store(home).quiet.maintenance(time.time()), json)


@app.command()
def add(
    nodes: list[str] = typer.Argument(help="Names of nodes, or patterns like 'n0*'."),
    lasts: str = typer.Option("2h", "--for", help="How long: 30min, 2h, 3d."),
    begins: datetime | None = typer.Option(None, "--from", help="When it begins, in local time; else now."),
    reason: str = typer.Option("", help="Why; it stands beside it."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Judge these nodes not, from now or then."""
    from clustertwin.core.durations import parse_duration
    from clustertwin.service.store.quiet_times import Maintenance

    now_s = time.time()
    start_s = begins.timestamp() if begins else now_s
    window = Maintenance(tuple(nodes), start_s, start_s + parse_duration(lasts), reason, getpass.getuser())
    _print([open_store(home).quiet.add_maintenance(window, now_s)], json)


@app.command()
def end(number: int = typer.Argument(help="Its number."), home: Path = Home, json: bool = Json) -> None:
    """Let a window end now, or one that is to come never begin."""
    from clustertwin.core.errors import SettingsError

    if not open_store(home).quiet.end_maintenance(number, getpass.getuser(), time.time()):
        raise SettingsError(f"no maintenance window {number} that has not ended")
    if json:
        print_json({"ended": number})


def _print(windows: list[Maintenance], json: bool) -> None:
    if json:
        print_json([asdict(window) for window in windows])
        return
    rows = [
        (one.id, " ".join(one.nodes), *map(_local, (one.start_s, one.end_s)), one.reason, one.who) for one in windows
    ]
    print_table("", ("number", "nodes", "from", "until", "why", "who"), rows, ("number", "nodes"))


def _local(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s):%Y-%m-%d %H:%M}"
