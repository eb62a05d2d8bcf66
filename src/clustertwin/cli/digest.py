"""`twin digest`: the last week's events, verdicts and false alarms, printed or sent."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, print_json

app = group()


@app.command()
def digest(
    home: Path = Home,
    days: float = typer.Option(7.0, min=0.01, help="How far back."),
    send: list[str] = typer.Option([], help="Send it to these Apprise URLs too."),
    link: str = typer.Option("", help="Where people reach the service, for links to events."),
    json: bool = Json,
) -> None:
    """What was seen in the last days, what people said of it, and how often the alarms were wrong."""
    from clustertwin.service.outgoing import weekly_digest as room
    from clustertwin.service.outgoing.notifications import deliver_now

    now_s = time.time()
    report = room.digest(open_store(home), now_s - days * 86_400, now_s)
    title, body = room.text(report, link)
    if json:
        print_json(asdict(report))
    else:
        typer.echo(f"{title}\n{body}")
    deliver_now(send, title, body)
