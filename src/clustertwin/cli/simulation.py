"""`twin campaign simulate|fit|compare`: draw a cluster, learn from recordings how, and check how well."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import typer
from rich.progress import track

from clustertwin.cli.output import Json, err, print_json, print_table

SignaturesFile = typer.Option(None, "--signatures", help="Made by `twin campaign fit`; default: those that came along.")


def simulate(
    out: Path = typer.Option(..., "--out", help="A new directory: one recording per round."),
    nodes: int = typer.Option(5, help="Nodes of the cluster."),
    threads: int = typer.Option(32, help="Hardware threads of a node."),
    hours: float = typer.Option(2.0, help="Length of a round."),
    rounds: int = typer.Option(3, min=1, help="Each round is a campaign of its own, wholly train, validation or test."),
    seed: int = typer.Option(0, help="The same seed gives the same bytes."),
    types: str = typer.Option("", help="Job types, such as np,mpi-8; default: np, good-io and mpi of several sizes."),
    anomalies: str = typer.Option("all", help="all, none, or names: straggler-x2,hung-rank; only in test rounds."),
    job_s: tuple[float, float] = typer.Option((600.0, 3600.0), "--job-seconds", help="Shortest and longest job."),
    signatures: Path | None = SignaturesFile,
    json: bool = Json,
) -> None:
    """Draw a whole cluster at work, with its jobs and anomalies as labels, from signatures of recorded jobs."""
    from clustertwin.telemetry.campaign.simulated_rounds import write_rounds
    from clustertwin.telemetry.simulation.anomalies import possible
    from clustertwin.telemetry.simulation.demand import JOB_TYPES, ClusterSettings
    from clustertwin.telemetry.simulation.signature import read_signatures

    known = read_signatures(signatures)
    named = {"all": possible(known), "none": ()}
    chosen = named[anomalies] if anomalies in named else tuple(anomalies.split(","))
    job_types = tuple(types.split(",")) if types else JOB_TYPES
    settings = ClusterSettings(nodes, threads, hours, job_types, chosen, job_s=job_s)
    steps = write_rounds(out, settings, known, rounds, seed)
    written = list(track(steps, "simulating", total=rounds, console=err, transient=True))
    if json:
        print_json(
            {
                "settings": asdict(settings),
                "seed": seed,
                "rounds": [asdict(row) | {"directory": str(row.directory)} for row in written],
            }
        )
    else:
        columns = ("recording", "split", "jobs", "anomalous", "thread hours")
        rows = [(r.directory, r.split, r.jobs, r.anomalous, r.thread_s / 3600) for r in written]
        print_table(f"{nodes} × {threads} threads, {hours:g} h a round", columns, rows)


def fit(
    recordings: list[Path] = typer.Argument(help="Recordings, or directories that hold them."),
    out: Path = typer.Option(Path("signatures.json"), "--out", help="The file to write."),
    seed: int = typer.Option(0, help="Of the draws that calibrate the spectra."),
    json: bool = Json,
) -> None:
    """Estimate, per kind of job, the random process that its threads' seconds follow."""
    from clustertwin.telemetry.campaign.fitting.fit_recordings import fit_recordings
    from clustertwin.telemetry.campaign.fitting.provenance import describe_host
    from clustertwin.telemetry.simulation.signature import write_signatures

    now = datetime.now(UTC).date().isoformat()
    found = fit_recordings(recordings, {"command": _command(), "fitted": now, **describe_host(Path("/proc"))}, seed)
    write_signatures(out, found)
    rows = [(k.job_type, k.anomaly, k.jobs, k.thread_s) for k in found.kinds.values()]
    if json:
        print_json({"out": str(out), "provenance": found.provenance, "kinds": rows})
    else:
        print_table(str(out), ("job type", "anomaly", "jobs", "thread seconds"), rows)


def compare(
    recorded: Path = typer.Argument(help="Recorded campaigns."),
    simulated: Path = typer.Argument(help="Simulated campaigns."),
    out: Path = typer.Option(..., "--out", help="A directory for the figures, one per kind of job."),
    length_s: int = typer.Option(100, help="Length of a window."),
    stride_s: int | None = typer.Option(None, help="From window to window; default: side by side."),
    seed: int = typer.Option(0, help="Of the classifier and of the choice of windows."),
    json: bool = Json,
) -> None:
    """Marginals, spectra and a classifier's AUC: how well simulated windows pass for recorded ones, kind by kind."""
    from clustertwin.telemetry.campaign.fitting.comparison_figures import draw_figures
    from clustertwin.telemetry.campaign.fitting.simulated_against_recorded import compare as rows_of
    from clustertwin.telemetry.campaign.fitting.simulated_against_recorded import windows_of

    sides = windows_of(recorded, length_s, stride_s), windows_of(simulated, length_s, stride_s)
    with err.status("comparing"):
        rows = rows_of(*sides, seed)
        figures = draw_figures(*sides, out)
    if json:
        found = [asdict(row) for row in rows]
        print_json({"command": _command(), "rows": found, "figures": [str(path) for path in figures]})
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
        print_table(f"windows of {length_s} s; AUC 0.5: cannot tell", columns, cells)


def _command() -> str:
    """As it was typed, without the directories of this machine."""
    return " ".join(["twin", *(Path(word).name or word for word in sys.argv[1:])])
