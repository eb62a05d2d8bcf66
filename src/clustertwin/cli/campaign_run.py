"""`twin campaign run|types`: real jobs or programs of the zoo -> recordings and a summary of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from clustertwin.cli.campaign_zoo import check_catalogue, run_zoo, show_zoo
from clustertwin.cli.options import MOST_SEED, options
from clustertwin.cli.output import Json, err, print_json, print_table

if TYPE_CHECKING:
    from clustertwin.telemetry.campaign.campaign_run import CampaignResult
    from clustertwin.telemetry.campaign.recorded_rounds import RoundProgress


@dataclass(frozen=True)
class CampaignOptions:
    out: Annotated[Path, typer.Option(help="Directory of the campaign; complete rounds in it are kept.")]
    catalogue: Annotated[
        str, typer.Option(help="jobs: our own job programs; zoo: real programs with imposed faults, as root.")
    ] = "jobs"
    rounds: Annotated[
        int, typer.Option(min=1, help="Number of recordings, each train, validation or test; of the zoo: per program.")
    ] = 3
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Random seed of the order, lengths and sizes of the jobs.")
    ] = 0
    job_seconds: Annotated[tuple[float, float], typer.Option(help="Shortest and longest job.")] = (105.0, 150.0)
    types: Annotated[
        list[str],
        typer.Option(
            "--type",
            help="Job type, or program of the zoo; repeat for more. Default: np, good-io, bad-io, mpi-N and idle, "
            "or all installed programs.",
        ),
    ] = field(default_factory=list)
    anomalies: Annotated[
        bool, typer.Option("--anomalies/--no-anomalies", help="Add all anomalies to the test rounds.")
    ] = False
    via: Annotated[str, typer.Option(help="direct, or slurm to submit jobs with sbatch.")] = "direct"
    nodes: Annotated[str, typer.Option(help="Slurm nodes on this host and their CPUs: 'n1=0,1 n2=2,3'.")] = ""
    scratch: Annotated[
        Path | None, typer.Option(help="Directory on a disk for the files of jobs. Default: OUT/scratch.")
    ] = None
    node_channels: Annotated[
        bool,
        typer.Option(
            "--node-channels", help="Also record memory and pressure of the node, as channels of every thread."
        ),
    ] = False
    window_s: Annotated[int, typer.Option(min=1, help="Window length in the table, in seconds.")] = 100
    cpus: Annotated[str, typer.Option(help="Zoo: the CPUs that are recorded, such as 1 or 0,1. Default: all.")] = ""
    faults: Annotated[
        list[str], typer.Option("--fault", help="Zoo: fault to impose; repeat for more. Default: all in turn.")
    ] = field(default_factory=list)
    faults_per_run: Annotated[int, typer.Option(min=0, help="Zoo: faults imposed one after the other in a run.")] = 2
    phase_seconds: Annotated[
        tuple[float, float, float], typer.Option(help="Zoo: healthy seconds, then each fault, and a recovery between.")
    ] = (300.0, 150.0, 40.0)
    most_runs: Annotated[int, typer.Option(min=0, help="Zoo: stop after this number of runs; 0: no limit.")] = 0
    json: bool = Json


@options(CampaignOptions)
def run(options: CampaignOptions) -> None:
    """Run real jobs on pinned CPUs, in random order and length, and record them with labels."""
    if options.catalogue == "zoo":
        return run_zoo(options)
    check_catalogue(options.catalogue)
    from clustertwin.telemetry.campaign.campaign_run import run_campaign
    from clustertwin.telemetry.campaign.catalogue import DEFAULT_TYPES
    from clustertwin.telemetry.campaign.jobs.pinning import parse_node_cpus
    from clustertwin.telemetry.campaign.plan import CampaignSettings
    from clustertwin.telemetry.campaign.scratch import scratch_warning

    settings = CampaignSettings(
        options.rounds,
        options.seed,
        *options.job_seconds,
        tuple(options.types) or DEFAULT_TYPES,
        options.anomalies,
        node_channels=options.node_channels,
    )
    if warning := scratch_warning(options.scratch or options.out):
        err.print(warning, style="yellow")
    with _progress(settings.rounds) as report:
        result = run_campaign(
            options.out,
            settings,
            via=options.via,
            nodes=parse_node_cpus(options.nodes),
            scratch=options.scratch,
            window_s=options.window_s,
            report=report,
        )
    if options.json:
        print_json(_document(result))
    else:
        _show(result)
    if result.failures:
        raise typer.Exit(1)


def types(
    catalogue: Annotated[str, typer.Option(help="jobs, or zoo for real programs and imposed faults.")] = "jobs",
    json: bool = Json,
) -> None:
    """List the job types: what each does, and the CPU ratios that it should show."""
    if catalogue == "zoo":
        return show_zoo(json)
    check_catalogue(catalogue)
    from clustertwin.telemetry.campaign.catalogue import DEFAULT_TYPES, JOB_TYPES

    rows = [
        (
            name,
            row.about,
            row.anomaly,
            "; ".join(map(str, row.expectations)),
            "yes" if name in DEFAULT_TYPES else "--anomalies",
        )
        for name, row in JOB_TYPES.items()
    ]
    columns = ("type", "what it does", "anomaly", "on a quiet host", "by default")
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table("Job types", columns, rows)


@contextmanager
def _progress(rounds: int) -> Iterator[Callable[[RoundProgress], None]]:
    """A progress bar for each round. It is drawn only once a second, because this host is being recorded."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[running]}"), console=err, refresh_per_second=1) as bar:
        tasks: dict[int, Any] = {}

        def report(progress: RoundProgress) -> None:
            if progress.round not in tasks:
                description = f"round {progress.round + 1} of {rounds}, {progress.split}"
                tasks[progress.round] = bar.add_task(description, total=progress.jobs, running="")
            bar.update(tasks[progress.round], completed=progress.done, running=", ".join(progress.running))

        yield report


def _document(result: CampaignResult) -> dict[str, Any]:
    rounds = [asdict(outcome) | {"directory": str(outcome.directory)} for outcome in result.rounds]
    return {"rounds": rounds, "table": [asdict(row) for row in result.table], "failures": result.failures}


def _show(result: CampaignResult) -> None:
    splits = ("train", "validation", "test")
    channels = ("user", "system", "iowait", "other")
    rows = [
        (
            row.kind,
            *(row.windows.get(split, 0) for split in splits),
            *(f"{row.means[channel]:.3f}" for channel in channels),
            "✗" if row.unmet else "✓" if row.expected else "",
        )
        for row in result.table
    ]
    print_table("Windows and mean ratios", ("job type", *splits, *channels, "fits"), rows)
    if not result.table:
        typer.echo("No job is as long as a window. Increase --job-seconds or decrease --window-s.")
    for row in result.table:
        for unmet in row.unmet:
            typer.echo(f"{row.kind}: expectation not met on this host: {unmet}")
    for name, reason in result.failures.items():
        err.print(f"{name} failed: {reason}", style="red", highlight=False)
