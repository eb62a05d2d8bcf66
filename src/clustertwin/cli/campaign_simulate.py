"""`twin campaign simulate|fit|compare`: simulate a cluster, fit signatures to recordings, and compare the two."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from clustertwin.cli.options import MOST_SEED, options
from clustertwin.cli.output import Json, err, print_json, print_table
from clustertwin.cli.recorded_command import recorded_command


@dataclass(frozen=True)
class SimulationOptions:
    out: Annotated[Path, typer.Option(help="New directory with one recording per round.")]
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster.")] = 5
    threads: Annotated[int, typer.Option(help="Hardware threads of a node.")] = 32
    hours: Annotated[float, typer.Option(max=24 * 366, help="Length of a round, in hours.")] = 2.0
    rounds: Annotated[int, typer.Option(min=1, help="Number of recordings. Each is train, validation or test.")] = 3
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Random seed; the same seed gives the same bytes.")
    ] = 0
    types: Annotated[
        str, typer.Option(help="Job types, such as np,mpi-8. Default: np, good-io and several sizes of mpi.")
    ] = ""
    anomalies: Annotated[
        str, typer.Option(help="all, none, or names such as straggler-x2,hung-rank. Only test rounds have anomalies.")
    ] = "all"
    job_s: Annotated[tuple[float, float], typer.Option("--job-seconds", help="Shortest and longest job.")] = (
        600.0,
        3600.0,
    )
    signatures: Annotated[
        Path | None, typer.Option(help="File made by `twin campaign fit`. Default: the signatures of this package.")
    ] = None
    json: bool = Json


@options(SimulationOptions)
def simulate(options: SimulationOptions) -> None:
    """Simulate a whole cluster from signatures of recorded jobs, labelled with jobs and anomalies."""
    from clustertwin.telemetry.campaign.simulated_rounds import write_rounds
    from clustertwin.telemetry.simulation.anomalies import available_anomalies
    from clustertwin.telemetry.simulation.demand import DEFAULT_JOB_TYPES, ClusterSettings
    from clustertwin.telemetry.simulation.signature import read_signatures

    signatures = read_signatures(options.signatures)
    groups = {"all": available_anomalies(signatures), "none": ()}
    anomalies = groups[options.anomalies] if options.anomalies in groups else tuple(options.anomalies.split(","))
    job_types = tuple(options.types.split(",")) if options.types else DEFAULT_JOB_TYPES
    settings = ClusterSettings(options.nodes, options.threads, options.hours, job_types, anomalies, job_s=options.job_s)
    steps = write_rounds(options.out, settings, signatures, options.rounds, options.seed)
    written = list(track(steps, "simulating", total=options.rounds, console=err, transient=True))
    if options.json:
        print_json(
            {
                "settings": asdict(settings),
                "seed": options.seed,
                "rounds": [asdict(row) | {"directory": str(row.directory)} for row in written],
            }
        )
    else:
        columns = ("recording", "split", "jobs", "anomalous", "thread hours")
        rows = [(row.directory, row.split, row.jobs, row.anomalous, row.thread_s / 3600) for row in written]
        title = f"{options.nodes} × {options.threads} threads, {options.hours:g} h per round"
        print_table(title, columns, rows)


def fit(
    recordings: list[Path] = typer.Argument(help="Recordings, or directories that contain them."),
    out: Path = typer.Option(Path("signatures.json"), "--out", help="File to write."),
    seed: int = typer.Option(0, min=0, max=MOST_SEED, help="Random seed of the draws that calibrate the spectra."),
    json: bool = Json,
) -> None:
    """Fit the stochastic process of each kind of job to recordings."""
    from clustertwin.telemetry.campaign.fitting.fit_recordings import fit_recordings
    from clustertwin.telemetry.campaign.fitting.provenance import describe_host
    from clustertwin.telemetry.simulation.signature import write_signatures

    today = datetime.now(UTC).date().isoformat()
    provenance = {"command": recorded_command(), "fitted": today, **describe_host(Path("/proc"))}
    signatures = fit_recordings(recordings, provenance, seed)
    write_signatures(out, signatures)
    rows = [(kind.job_type, kind.anomaly, kind.jobs, kind.thread_s) for kind in signatures.kinds.values()]
    if json:
        print_json({"out": str(out), "provenance": signatures.provenance, "kinds": rows})
    else:
        print_table(str(out), ("job type", "anomaly", "jobs", "thread seconds"), rows)


def compare(
    recorded: Path = typer.Argument(help="Recorded campaigns."),
    simulated: Path = typer.Argument(help="Simulated campaigns."),
    out: Path = typer.Option(..., "--out", help="Directory for the figures, one per kind of job."),
    length_s: int = typer.Option(100, help="Window length in seconds."),
    stride_s: int | None = typer.Option(None, help="Seconds between windows. Default: the window length."),
    seed: int = typer.Option(
        0, min=0, max=MOST_SEED, help="Random seed of the classifier and of the choice of windows."
    ),
    json: bool = Json,
) -> None:
    """Compare simulated with recorded windows by marginals, spectra and the AUC of a classifier."""
    from clustertwin.telemetry.campaign.fitting.comparison_figures import draw_figures
    from clustertwin.telemetry.campaign.fitting.simulated_against_recorded import compare as compare_windows
    from clustertwin.telemetry.campaign.fitting.simulated_against_recorded import windows_of

    sides = windows_of(recorded, length_s, stride_s), windows_of(simulated, length_s, stride_s)
    with err.status("comparing"):
        rows = compare_windows(*sides, seed)
        figures = draw_figures(*sides, out)
    if json:
        plain = [asdict(row) for row in rows]
        print_json({"command": recorded_command(), "rows": plain, "figures": [str(path) for path in figures]})
    else:
        columns = ("job type", "windows", "simulated", "marginal", "spectrum dB", "AUC", "AUC recorded")
        cells = [
            (
                " ".join(dict.fromkeys(part for part in (row.job_type, row.anomaly) if part)),
                row.recorded_windows,
                row.simulated_windows,
                row.marginal_distance,
                row.spectral_distance_db,
                row.auc,
                row.recorded_auc,
            )
            for row in rows
        ]
        print_table(f"Windows of {length_s} s; an AUC of 0.5 means indistinguishable", columns, cells)
