"""`twin record`: this host, an exporter or a Prometheus range -> a recording."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.output import Json, err, print_json
from clustertwin.core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clustertwin.core.traces import Trace

app = typer.Typer()


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
    flush_s: int = typer.Option(10, "--flush-s", min=1, help="The most seconds a crash may cost."),
    json: bool = Json,
) -> None:
    """Record 1 Hz traces of every hardware thread, with the jobs seen on them. Ctrl-C ends it cleanly."""
    from clustertwin.telemetry.rates import RateStream
    from clustertwin.telemetry.recording import RecordingSettings
    from clustertwin.telemetry.recording.taking import hour_by_hour, take
    from clustertwin.telemetry.sources import watch
    from clustertwin.telemetry.sources.exporter import Exporter
    from clustertwin.telemetry.sources.host import Host
    from clustertwin.telemetry.sources.http import Endpoint
    from clustertwin.telemetry.sources.prometheus import Prometheus

    if prometheus:
        start_s, end_s = _epoch_s(start, "--start"), _epoch_s(end or str(int(time.time())), "--end")
        if exporter or node or end_s <= start_s:
            raise SettingsError("--prometheus takes --start before --end, and neither --exporter nor --node")
        history = Prometheus(Endpoint(prometheus), matchers=matchers, node_channels=node_channels)
        source, total_s = hour_by_hour(history, start_s, end_s, node_channels=node_channels), end_s - start_s
    else:
        live = Exporter(Endpoint(exporter), node) if exporter else Host(node=node)
        source, total_s = watch(live, seconds, stream=RateStream(node_channels=node_channels)), seconds
    with _progress(total_s) as on_trace:
        taken = take(source, out, RecordingSettings(flush_s=flush_s), on_trace)
    if json:
        print_json({"out": str(out), **asdict(taken)})
    else:
        print(
            f"{out}: {taken.end_s - taken.start_s} s of {taken.threads} threads on {taken.nodes} node(s), "
            f"{taken.jobs} job(s){', until Ctrl-C' if taken.interrupted else ''}"
        )


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
