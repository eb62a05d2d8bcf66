"""`twin job ID`: how the threads of a job spent their time, and which Slurm directive to change."""

from __future__ import annotations

from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, recording_of
from clustertwin.cli.output import Json, print_json

app = group()


@app.command()
def job(
    job: str = typer.Argument(help="The id of the job in the scheduler."),
    recording: Path | None = typer.Option(None, "--recording", help="A recording; default: the one in the home."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Print the report of a job: how each thread spent its time, and which Slurm directive to change."""
    from clustertwin.service.outgoing import job_report
    from clustertwin.service.web.api.json_values import plain
    from clustertwin.telemetry.recording import Recording

    usage = job_report.usage_recorded(Recording.open(recording or recording_of(home)), job)
    if json:
        print_json({**plain(usage), "notes": job_report.notes(usage)})
    else:
        typer.echo(job_report.render(usage))
