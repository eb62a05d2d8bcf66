"""`twin silence`: suppress notifications for some events. A running service is not needed."""

from __future__ import annotations

import getpass
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, print_json, print_table
from clustertwin.core.formatting import local_time

if TYPE_CHECKING:
    from clustertwin.service.store.quiet_periods import Silence

app = group("Silences: matching events are stored and shown, but nobody is notified.")


@app.command("list")
def list_(home: Path = Home, json: bool = Json) -> None:
    """List silences that have not ended."""
    _print(open_store(home).quiet_periods.silences(time.time()), json)


@app.command()
def add(
    node: str = typer.Option("", help="Match events on this node; patterns such as 'n0*' are allowed."),
    job: str = typer.Option("", help="Match events of this job."),
    owner: str = typer.Option("", help="Match events of this owner's jobs."),
    view: str = typer.Option("", help="Match events of this view."),
    lasts: str = typer.Option("2h", "--for", help="Duration, such as 30min, 2h or 3d."),
    reason: str = typer.Option("", help="A reason that is shown with the silence."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Add a silence for events that match all of these options."""
    from clustertwin.core.durations import parse_duration
    from clustertwin.service.store.quiet_periods import Silence

    now_s = time.time()
    silence = Silence(now_s + parse_duration(lasts), node, job, owner, view, reason, getpass.getuser())
    _print([open_store(home).quiet_periods.add_silence(silence, now_s)], json)


@app.command()
def end(number: int = typer.Argument(help="The number of the silence."), home: Path = Home, json: bool = Json) -> None:
    """End a silence now."""
    from clustertwin.core.errors import SettingsError

    if not open_store(home).quiet_periods.end_silence(number, getpass.getuser(), time.time()):
        raise SettingsError(f"there is no silence {number}, or it has ended")
    if json:
        print_json({"ended": number})


def _print(silences: list[Silence], json: bool) -> None:
    if json:
        print_json([asdict(silence) for silence in silences])
        return
    rows = [
        (
            silence.id,
            *(pattern or "any" for pattern in (silence.node, silence.job, silence.owner, silence.view)),
            local_time(silence.until_s),
            silence.reason,
            silence.who,
        )
        for silence in silences
    ]
    columns = ("number", "node", "job", "owner", "view", "until", "reason", "who")
    print_table("", columns, rows, ("number",), instead="No silences.")
