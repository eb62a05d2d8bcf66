"""`twin evidence`: what a job's processes wait for. `cli.main` passes take and serve directly to the helper."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json

app = group("Evidence: what the processes of a job wait for, and which rank differs from the others.")
_PASSED = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASSED)
def take(context: typer.Context) -> None:
    """Take the evidence of a job on this node now."""
    _run(["take", *context.args])


@app.command(context_settings=_PASSED)
def serve(context: typer.Context) -> None:
    """Serve the evidence of jobs on this node to the twin. This is the helper of a node."""
    _run(["serve", *context.args])


@app.command()
def show(
    event: str = typer.Argument(help="The id of an event, or its first characters if they are unique."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Show the evidence that is stored with an event."""
    from clustertwin.cli.output import print_json
    from clustertwin.service.act.evidence_store import EvidenceStore
    from clustertwin.telemetry.diagnosis.__main__ import describe

    store = open_store(home)
    stored = EvidenceStore(store.database).of(store.find(event))
    if json:
        print_json([asdict(entry) for entry in stored])
        return
    if not stored:
        typer.echo("There is no evidence of this event.")
    for entry in stored:
        typer.echo(describe(entry.evidence))


def _run(arguments: list[str]) -> None:
    from clustertwin.telemetry.diagnosis.__main__ import main

    raise typer.Exit(main(arguments))
