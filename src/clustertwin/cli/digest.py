"""`twin digest`: print or send a summary of the last days: events, verdicts and false alarms."""

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
    days: float = typer.Option(7.0, min=0.01, max=36_525, help="Length of the period that the digest covers, in days."),
    send: list[str] = typer.Option(
        [], envvar="CLUSTERTWIN_DIGEST_SEND", help="Also send the digest to these Apprise URLs."
    ),
    link: str = typer.Option("", help="Address of the service, for links to events."),
    json: bool = Json,
) -> None:
    """Summarise the events of the last days, their verdicts and the rate of false alarms."""
    from clustertwin.service.outgoing import weekly_digest
    from clustertwin.service.outgoing.notifications import deliver_now

    now_s = time.time()
    report = weekly_digest.digest(open_store(home), now_s - days * 86_400, now_s)
    title, body = weekly_digest.text(report, link)
    if json:
        print_json(asdict(report))
    else:
        typer.echo(f"{title}\n{body}")
    deliver_now(send, title, body)
