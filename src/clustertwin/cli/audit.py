"""`twin audit`: who did what and when: verdicts, promotions, maintenance windows, silences, tokens."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, print_json, print_table

app = group()


@app.command()
def audit(
    subject: str = typer.Argument("", help="Only entries about this event, model or token."),
    limit: int = typer.Option(50, min=1, max=100_000, help="Show at most this many entries."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Show who did what, newest first. Entries cannot be changed; those older than retention.audit_days are deleted."""
    entries = open_store(home).audit(subject, limit=limit)
    if json:
        print_json([asdict(entry) for entry in entries])
        return
    rows = [
        (
            f"{datetime.fromtimestamp(entry.at_s):%Y-%m-%d %H:%M:%S}",
            entry.who or "-",
            entry.action,
            entry.subject,
            ", ".join(f"{key} {value}" for key, value in entry.after.items() if value and key not in ("who", "id")),
        )
        for entry in entries
    ]
    print_table("", ("when", "who", "action", "subject", "details"), rows, ("subject",), instead="No entries.")
