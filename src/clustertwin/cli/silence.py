"""`twin silence`: events that are recorded, and nobody is told of; beside a running service or without one."""

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
    from clustertwin.service.store.quiet_times import Silence

app = group("Silences: events that are recorded and shown, and nobody is told of.")


@app.command("list")
def list_(home: Path = Home, json: bool = Json) -> None:
    """Silences that hold."""
    _print(open_store(home).quiet.silences(time.time()), json)


@app.command()
def add(
    node: str = typer.Option("", help="Events on this node; patterns like 'n0*' too."),
    job: str = typer.Option("", help="… of this job."),
    owner: str = typer.Option("", help="… of this owner's jobs."),
    view: str = typer.Option("", help="… seen by this view."),
    lasts: str = typer.Option("2h", "--for", help="How long: 30min, 2h, 3d."),
    reason: str = typer.Option("", help="Why; it stands beside it."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Tell nobody of events that match all of these."""
    from clustertwin.core.durations import parse_duration
    from clustertwin.service.store.quiet_times import Silence

    now_s = time.time()
    silence = Silence(now_s + parse_duration(lasts), node, job, owner, view, reason, getpass.getuser())
    _print([open_store(home).quiet.add_silence(silence, now_s)], json)


@app.command()
def end(number: int = typer.Argument(help="Its number."), home: Path = Home, json: bool = Json) -> None:
    """Let a silence end now."""
    from clustertwin.core.errors import SettingsError

    if not open_store(home).quiet.end_silence(number, getpass.getuser(), time.time()):
        raise SettingsError(f"no silence {number} that has not ended")
    if json:
        print_json({"ended": number})


def _print(silences: list[Silence], json: bool) -> None:
    if json:
        print_json([asdict(silence) for silence in silences])
        return
    rows = [
        (
            one.id,
            *(wanted or "any" for wanted in (one.node, one.job, one.owner, one.view)),
            f"{datetime.fromtimestamp(one.until_s):%Y-%m-%d %H:%M}",
            one.reason,
            one.who,
        )
        for one in silences
    ]
    print_table("", ("number", "node", "job", "owner", "view", "until", "why", "who"), rows, ("number",))
