"""`twin recording info|windows|export`: the content of recordings, and their export."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.output import Json, err, print_json, print_table

if TYPE_CHECKING:
    from clustertwin.telemetry.recording.recording_summary import Summary

app = group("Recordings: their content, and their export to other tools.")

Directory = typer.Argument(..., help="A recording, or a directory with recordings below it.")
#: A shorter recording has more bytes of headers than of samples.
SHORT_S = 600
Length = typer.Option(100, "--window-s", min=1, help="Length of a window in seconds.")


@app.command()
def info(directory: Path = Directory, window_s: int = Length, json: bool = Json) -> None:
    """Show nodes, time span, samples, bytes per sample, jobs, and windows by job type."""
    from clustertwin.telemetry.recording import Recording
    from clustertwin.telemetry.recording.recording_summary import summarise

    summaries = [summarise(Recording.open(path), window_s) for path in _recordings(directory)]
    if json:
        print_json([asdict(summary) for summary in summaries])
        return
    for summary in summaries:
        rows = [
            *([("campaign", f"{summary.campaign} {summary.split}".strip())] if summary.campaign else []),
            ("nodes", ", ".join(f"{node} ({threads} threads)" for node, threads in summary.nodes.items())),
            ("channels", ", ".join(summary.channels)),
            ("from", datetime.fromtimestamp(summary.start_s, UTC).isoformat()),
            ("to", f"{datetime.fromtimestamp(summary.end_s, UTC).isoformat()} ({summary.end_s - summary.start_s} s)"),
            ("samples", f"{summary.samples:,} ({summary.missing_ratio:.1%} of the thread-seconds missing)"),
            ("size", f"{summary.size_bytes:,} bytes, {summary.bytes_per_sample:.3f} per sample{_of_short(summary)}"),
            ("jobs", summary.jobs),
            (
                "windows",
                ", ".join(f"{count} {kind}" for kind, count in summary.windows.items())
                or f"none: a window is {window_s} s of one thread",
            ),
        ]
        print_table(summary.directory, ("", ""), rows)


def _of_short(summary: Summary) -> str:
    """Why a short recording has many bytes for each sample."""
    return "" if summary.end_s - summary.start_s >= SHORT_S else " (a short recording is mostly headers)"


@app.command()
def windows(directory: Path = Directory, window_s: int = Length, json: bool = Json) -> None:
    """Count the windows by job type, anomaly and split."""
    from clustertwin.telemetry.recording import Recording
    from clustertwin.telemetry.recording.recording_summary import day_by_day

    counts: Counter[tuple[str, str, str]] = Counter()
    for path in _recordings(directory):
        for part in day_by_day(Recording.open(path), window_s):
            counts.update(zip(part.job_type.tolist(), part.anomaly.tolist(), part.split.tolist(), strict=True))
    columns = ("job_type", "anomaly", "split", "windows")
    rows = [(*key, count) for key, count in sorted(counts.items())]
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        instead = f"{directory}: no windows; a window is {window_s} s of one thread with one job, or without a job"
        print_table(f"Windows of {window_s} s", columns, rows, instead=instead)


@app.command()
def export(
    directory: Path = typer.Argument(..., help="A recording."),
    out: Path = typer.Option(
        ..., "--out", help="FILE.parquet or FILE.csv: a row for each thread and second. FILE.npz: windows."
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


def _recordings(directory: Path) -> list[Path]:
    """The recordings in or below a directory; an error if there are none."""
    from clustertwin.core.errors import RecordingError
    from clustertwin.telemetry.recording import find

    recordings = find(directory)
    if not recordings:
        raise RecordingError(directory, "there is no recording in or below this directory")
    return recordings
