"""`twin record`: this host, an exporter or a Prometheus range -> a recording."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli import endpoint
from clustertwin.cli.app import group
from clustertwin.cli.output import Json, err, print_json
from clustertwin.core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clustertwin.core.traces import Trace

app = group()


@app.command()
def record(
    out: Path = typer.Option(..., "--out", help="The recording's directory; it must not hold one yet."),
    seconds: int = typer.Option(60, "--seconds", min=1, help="How long to record this host or an exporter."),
    prometheus: str = typer.Option("", "--prometheus", help="Read a range from this server instead of recording live."),
    start: str = typer.Option("", "--start", help="The range's start: epoch seconds, or 2026-11-15T22:00:00+00:00."),
    end: str = typer.Option("", "--end", help="The range's end; now if not given."),
    exporter: str = typer.Option("", "--exporter", help="Record this exporter instead of this host."),
    node: str = typer.Option("", "--node", help="Call the node so; else as it calls itself."),
    matchers: str = typer.Option("", "--match", help='Narrow a Prometheus range: instance=~"n1.*",job="twin".'),
    node_channels: bool = typer.Option(False, "--node-channels", help="Record memory used and I/O pressure too."),
    interval_s: int = typer.Option(1, "--interval-s", min=1, help="Seconds between samples; a site may scrape at 15."),
    username: str = endpoint.Username,
    password_file: Path | None = endpoint.PasswordFile,
    token_file: Path | None = endpoint.TokenFile,
    ca_file: Path | None = endpoint.CaFile,
    flush_s: int = typer.Option(10, "--flush-s", min=1, help="The most seconds a crash may cost."),
    keep_hours: int = typer.Option(0, "--keep-hours", min=0, help="Delete what is older; 0: keep all."),
    keep_gb: float = typer.Option(0.0, "--keep-gb", min=0.0, help="Delete the oldest above this size; 0: keep all."),
    json: bool = Json,
) -> None:
    """Record 1 Hz traces of every hardware thread, with the jobs seen on them. Ctrl-C ends it cleanly."""
    from clustertwin.telemetry.ingest.rates import RateStream
    from clustertwin.telemetry.ingest.sources import watch
    from clustertwin.telemetry.ingest.sources.local_host import Host
    from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
    from clustertwin.telemetry.ingest.sources.single_exporter import Exporter
    from clustertwin.telemetry.recording import RecordingSettings
    from clustertwin.telemetry.recording.capture import hour_by_hour, take

    server = partial(
        endpoint.build, username=username, password_file=password_file, token_file=token_file, ca_file=ca_file
    )
    if prometheus:
        start_s, end_s = _epoch_s(start, "--start"), _epoch_s(end or str(int(time.time())), "--end")
        if exporter or node or end_s <= start_s:
            raise SettingsError("--prometheus takes --start before --end, and neither --exporter nor --node")
        history = Prometheus(server(prometheus), matchers=matchers, node_channels=node_channels)
        source = hour_by_hour(
            history, start_s, end_s, interval_s=interval_s, node_channels=node_channels, on_hole=_tell_of_hole
        )
        total_s = end_s - start_s
    else:
        live = Exporter(server(exporter), node, pages=node_channels) if exporter else Host(node=node)
        source, total_s = watch(live, seconds, stream=RateStream(interval_s, node_channels)), seconds
    settings = RecordingSettings(
        interval_s, flush_s=flush_s, keep_s=keep_hours * 3600 or None, keep_bytes=int(keep_gb * 1e9) or None
    )
    with _progress(total_s) as on_trace:
        taken = take(source, out, settings, on_trace)
    if json:
        print_json({"out": str(out), **asdict(taken)})
    else:
        print(
            f"{out}: {taken.end_s - taken.start_s} s of {taken.threads} threads on {taken.nodes} node(s), "
            f"{taken.jobs} job(s){', until Ctrl-C' if taken.interrupted else ''}"
        )


def _tell_of_hole(start_s: int, end_s: int) -> None:
    err.print(f"no samples between {start_s} and {end_s}: left out")


def _epoch_s(text: str, option: str) -> int:
    try:
        return (
            int(float(text)) if text.replace(".", "", 1).isdecimal() else int(datetime.fromisoformat(text).timestamp())
        )
    except ValueError:
        raise SettingsError(f"{option} {text!r}: epoch seconds, or a date like 2026-11-15T22:00:00+00:00") from None


@contextmanager
def _progress(total_s: int) -> Iterator[Callable[[Trace], None]]:
    """A bar of seconds on standard error; yields what to call with each trace."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("recorded"), BarColumn(), MofNCompleteColumn(), TextColumn("s"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task, begin_s = progress.add_task("", total=total_s), 0

        def on_trace(trace: Trace) -> None:
            nonlocal begin_s
            begin_s = begin_s or trace.start_s
            progress.update(task, completed=min(trace.end_s - begin_s, total_s))

        yield on_trace
