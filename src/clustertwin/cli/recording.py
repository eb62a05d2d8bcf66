"""`twin recording info|windows|export`: what a recording holds, and its way to other tools."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.output import Json, err, print_json, print_table

app = group("Recordings: what they hold, and export.")

Directory = typer.Argument(..., help="A recording, or a directory with recordings below it.")
Length = typer.Option(100, "--window-s", min=1, help="Length of a window in seconds.")


@app.command()
def info(directory: Path = Directory, window_s: int = Length, json: bool = Json) -> None:
    """Nodes, time span, samples, bytes a sample, jobs and windows per job type."""
    from clustertwin.telemetry.recording import Recording
    from clustertwin.telemetry.recording.recording_summary import summarise

    summaries = [summarise(Recording.open(path), window_s) for path in _found(directory)]
    if json:
        print_json([asdict(summary) for summary in summaries])
        return
    for one in summaries:
        rows = [
            ("campaign", f"{one.campaign} {one.split}".strip() or "-"),
            ("nodes", ", ".join(f"{node} ({threads} threads)" for node, threads in one.nodes.items())),
            ("channels", ", ".join(one.channels)),
            ("from", datetime.fromtimestamp(one.start_s, UTC).isoformat()),
            ("to", f"{datetime.fromtimestamp(one.end_s, UTC).isoformat()} ({one.end_s - one.start_s} s)"),
            ("samples", f"{one.samples:,} ({one.missing_ratio:.1%} of the thread-seconds missing)"),
            ("size", f"{one.size_bytes:,} bytes, {one.bytes_per_sample:.3f} a sample"),
            ("jobs", one.jobs),
            ("windows", ", ".join(f"{count} {kind}" for kind, count in one.windows.items()) or "none"),
        ]
        print_table(one.directory, ("", ""), rows)


@app.command()
def windows(directory: Path = Directory, window_s: int = Length, json: bool = Json) -> None:
    """How many windows of each job type and split, anomalous ones apart."""
    from clustertwin.telemetry.recording import Recording
    from clustertwin.telemetry.recording.recording_summary import day_by_day

    counts: Counter[tuple[str, str, str]] = Counter()
    for path in _found(directory):
        for some in day_by_day(Recording.open(path), window_s):
            counts.update(zip(some.job_type.tolist(), some.anomaly.tolist(), some.split.tolist(), strict=True))
    columns = ("job_type", "anomaly", "split", "windows")
    rows = [(*key, count) for key, count in sorted(counts.items())]
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(f"Windows of {window_s} s", columns, rows)


@app.command()
def export(
    directory: Path = typer.Argument(..., help="A recording."),
    out: Path = typer.Option(
        ..., "--out", help="FILE.parquet or FILE.csv: a row per thread and second; FILE.npz: windows."
    ),
    window_s: int = Length,
    json: bool = Json,
) -> None:
    """Write a recording as Parquet, CSV or npz."""
    from clustertwin.telemetry.recording import Recording
    from clustertwin.telemetry.recording.export import export as write

    recording = Recording.open(directory)
    with err.status(f"writing {out}"):
        rows = write(recording, out, window_s)
    if json:
        print_json({"out": str(out), "rows": rows})
    else:
        print(f"{out}: {rows} {'windows' if out.suffix == '.npz' else 'rows'}")


def _found(directory: Path) -> list[Path]:
    """The recordings here or below; none is an error."""
    from clustertwin.core.errors import RecordingError
    from clustertwin.telemetry.recording import find

    found = find(directory)
    if not found:
        raise RecordingError(directory, "no recording here or below")
    return found
