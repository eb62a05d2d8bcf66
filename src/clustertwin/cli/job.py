"""`twin job ID`: how the threads of a job spent their time, and which Slurm directive to change."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store, recording_of
from clustertwin.cli.output import Json, print_json
from clustertwin.core.foreign_files import expanded
from clustertwin.core.formatting import visible_lines

if TYPE_CHECKING:
    from clustertwin.service.outgoing.job_report import JobUsage
    from clustertwin.service.store.event_store import Case

app = group()


@app.command()
def job(
    job: str = typer.Argument(help="The id of the job in the scheduler."),
    recording: Path | None = typer.Option(None, "--recording", help="A recording; default: the one in the home."),
    prometheus: str = typer.Option("", help="URL of Prometheus; default: the one that the service of the home reads."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Print the report of a job: how each thread spent its time, and which Slurm directive to change."""
    from clustertwin.service.outgoing import job_report
    from clustertwin.service.web.api.json_values import plain

    usage = job_report.with_cause(_usage(job, recording, prometheus, home), _cases(home, job))
    if json:
        print_json({**plain(usage), "notes": job_report.notes(usage)})
    else:
        typer.echo(visible_lines(job_report.render(usage)))  # names of nodes, of a recording from elsewhere


def _usage(job: str, recording: Path | None, prometheus: str, home: Path) -> JobUsage:
    """From the recording that is named or that the service made, or else from Prometheus."""
    from clustertwin.core.errors import SettingsError
    from clustertwin.service.live.feeds.source_setup import SourceSettings, read_source
    from clustertwin.service.outgoing import job_report
    from clustertwin.telemetry.recording import Recording
    from clustertwin.telemetry.recording.trace_archive import PrometheusArchive

    known = read_source(expanded(home)) if recording is None else None
    source = SourceSettings("prometheus", prometheus) if prometheus else known
    if recording is not None or source is None or source.kind != "prometheus":
        return job_report.usage_recorded(Recording.open(recording or recording_of(home)), job)
    archive, now_s = PrometheusArchive(source.endpoint(source.url), source.match), time.time()
    usage = job_report.usage_queried(archive.job_traces(job, now_s), job, now_s)
    if usage is None:
        raise SettingsError(f"there is no job {job!r} in {archive.name} within the last day")
    return usage


def _cases(home: Path, job: str) -> list[Case]:
    """The events of the job, if a service has run in this home."""
    from clustertwin.service.store.event_store import Filter

    if not (expanded(home) / "state.sqlite").exists():
        return []
    return open_store(home).events(Filter(job=job), 50)
