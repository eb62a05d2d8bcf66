"""`twin job ID`: what a job's threads did, and the directive to change."""

from __future__ import annotations

from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, recording_of
from clustertwin.cli.output import Json, print_json

app = group()


@app.command()
def job(
    job: str = typer.Argument(help="The job's id, as the scheduler names it."),
    recording: Path | None = typer.Option(None, "--recording", help="A recording; else the service's own."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """A job's report: where its time went, thread by thread, and notes that name what to change."""
    from clustertwin.service import jobreport
    from clustertwin.service.api.plain import plain
    from clustertwin.telemetry.recording import Recording

    usage = jobreport.usage_recorded(Recording.open(recording or recording_of(home)), job)
    if json:
        print_json({**plain(usage), "notes": jobreport.notes(usage)})
    else:
        typer.echo(jobreport.render(usage))
