"""`twin campaign run|types`: real jobs, directly or through Slurm -> recordings and the table of what they gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from clustertwin.cli.output import Json, err, print_json, print_table

if TYPE_CHECKING:
    from clustertwin.telemetry.campaign.campaign_run import Campaign
    from clustertwin.telemetry.campaign.recorded_rounds import Progress as Where


def run(
    out: Path = typer.Option(..., "--out", help="The campaign's directory; complete rounds in it are kept."),
    rounds: int = typer.Option(3, "--rounds", min=1, help="Recordings; each wholly of train, validation or test."),
    seed: int = typer.Option(0, "--seed", help="Of the order, lengths and sizes of the jobs."),
    job_seconds: tuple[float, float] = typer.Option((105.0, 150.0), "--job-seconds", help="Shortest, longest job."),
    types: list[str] = typer.Option([], "--type", help="A job type, again for more; np good-io bad-io mpi-N idle."),
    anomalies: bool = typer.Option(False, "--anomalies/--no-anomalies", help="All anomalies too, in test rounds."),
    via: str = typer.Option("direct", "--via", help="direct, or slurm: through sbatch, labels from its accounting."),
    nodes: str = typer.Option("", "--nodes", help="Slurm nodes on this host and their CPUs: 'n1=0,1 n2=2,3'."),
    scratch: Path | None = typer.Option(
        None, "--scratch", help="Where jobs write, on a disk; DIR/scratch if not given."
    ),
    node_channels: bool = typer.Option(False, "--node-channels", help="Record memory used and I/O pressure too."),
    window_s: int = typer.Option(100, "--window-s", min=1, help="Length of the windows counted in the table."),
    json: bool = Json,
) -> None:
    """Run real jobs on real CPUs, pinned, in seeded order and length, and record them with labels."""
    from clustertwin.telemetry.campaign.campaign_run import run_campaign
    from clustertwin.telemetry.campaign.catalogue import NORMAL
    from clustertwin.telemetry.campaign.pinning import parse_node_cpus
    from clustertwin.telemetry.campaign.plan import CampaignSettings
    from clustertwin.telemetry.campaign.scratch import warn_of

    settings = CampaignSettings(
        rounds, seed, *job_seconds, tuple(types) or NORMAL, anomalies, node_channels=node_channels
    )
    if warning := warn_of(scratch or out):
        err.print(f"[yellow]{warning}[/yellow]")
    with _progress(settings.rounds) as report:
        campaign = run_campaign(
            out,
            settings,
            via=via,
            nodes=parse_node_cpus(nodes),
            scratch=scratch,
            window_s=window_s,
            report=report,
        )
    if json:
        print_json(_document(campaign))
    else:
        _show(campaign)
    if campaign.failures:
        raise typer.Exit(1)


def types(json: bool = Json) -> None:
    """The job types a campaign can run: what each does, and where its CPU time should go."""
    from clustertwin.telemetry.campaign.catalogue import JOB_TYPES, NORMAL

    rows = [
        (name, row.about, row.anomaly, "; ".join(map(str, row.expect)), "yes" if name in NORMAL else "--anomalies")
        for name, row in JOB_TYPES.items()
    ]
    columns = ("type", "what it does", "anomaly", "on a quiet host", "by default")
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table("Job types", columns, rows)


@contextmanager
def _progress(rounds: int) -> Iterator[Callable[[Where], None]]:
    """A bar of the round's jobs, with what runs now; drawn once a second, for this host is being recorded."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[running]}"), console=err, refresh_per_second=1) as bar:
        tasks: dict[int, Any] = {}

        def report(where: Where) -> None:
            if where.round not in tasks:
                what = f"round {where.round + 1} of {rounds}, {where.split}"
                tasks[where.round] = bar.add_task(what, total=where.jobs, running="")
            bar.update(tasks[where.round], completed=where.done, running=", ".join(where.running))

        yield report


def _document(campaign: Campaign) -> dict[str, Any]:
    rounds = [asdict(each) | {"directory": str(each.directory)} for each in campaign.rounds]
    return {"rounds": rounds, "table": [asdict(row) for row in campaign.table], "failures": campaign.failures}


def _show(campaign: Campaign) -> None:
    splits = ("train", "validation", "test")
    channels = ("user", "system", "iowait", "other")
    rows = [
        (
            row.kind,
            *(row.windows.get(split, 0) for split in splits),
            *(f"{row.means[channel]:.3f}" for channel in channels),
            "✗" if row.unmet else "✓" if row.expected else "",
        )
        for row in campaign.table
    ]
    print_table("Windows and mean ratios", ("job type", *splits, *channels, "fits"), rows)
    if not campaign.table:
        typer.echo("No job was as long as a window; see --job-seconds and --window-s.")
    for row in campaign.table:
        for unmet in row.unmet:
            typer.echo(f"{row.kind}: this host does not give what it should: {unmet}")
    for name, why in campaign.failures.items():
        err.print(f"[red]{name} failed:[/red] {why}", highlight=False)
