"""`twin record`: this host, an exporter or a Prometheus range -> a recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clustertwin.cli import endpoint
from clustertwin.cli.app import group
from clustertwin.cli.options import options
from clustertwin.cli.output import Json, err, print_json
from clustertwin.core.errors import SettingsError
from clustertwin.core.formatting import counted

if TYPE_CHECKING:
    from clustertwin.core.traces import Trace

app = group()


@dataclass(frozen=True)
class RecordOptions:
    out: Annotated[Path, typer.Option(help="Directory of the new recording.")]
    seconds: Annotated[int, typer.Option(min=1, help="How long to record this host or an exporter.")] = 60
    prometheus: Annotated[str, typer.Option(help="Read a range from this server instead of recording live.")] = ""
    start: Annotated[str, typer.Option(help="Start of the range, as epoch seconds or 2026-11-15T22:00:00+00:00.")] = ""
    end: Annotated[str, typer.Option(help="End of the range. Default: now.")] = ""
    exporter: Annotated[str, typer.Option(help="Record this exporter instead of this host.")] = ""
    node: Annotated[str, typer.Option(help="Name of the node. Default: its own name.")] = ""
    matchers: Annotated[
        str, typer.Option("--match", help='Select nodes of a Prometheus range: instance=~"n1.*",job="twin".')
    ] = ""
    node_channels: Annotated[
        bool, typer.Option("--node-channels", help="Record memory and pressure too, as channels of every thread.")
    ] = False
    interval_s: Annotated[
        int, typer.Option("--interval-s", min=1, help="Seconds between samples, such as 15 if a site scrapes so.")
    ] = 1
    username: str = endpoint.Username
    password_file: Path | None = endpoint.PasswordFile
    token_file: Path | None = endpoint.TokenFile
    ca_file: Path | None = endpoint.CaFile
    flush_s: Annotated[int, typer.Option("--flush-s", min=1, help="How many seconds a crash may lose.")] = 10
    keep_hours: Annotated[
        int, typer.Option("--keep-hours", min=0, help="Delete what is older than this. 0: keep all.")
    ] = 0
    keep_gb: Annotated[
        float, typer.Option("--keep-gb", min=0.0, help="Delete the oldest above this size. 0: keep all.")
    ] = 0.0
    json: bool = Json


@app.command()
@options(RecordOptions)
def record(options: RecordOptions) -> None:
    """Record every hardware thread at 1 Hz, with the jobs on it. Ctrl-C ends the recording cleanly."""
    from clustertwin.telemetry.recording import RecordingSettings
    from clustertwin.telemetry.recording.capture import take

    source, total_s = _range(options) if options.prometheus else _live(options)
    settings = RecordingSettings(
        options.interval_s,
        flush_s=options.flush_s,
        keep_s=options.keep_hours * 3600 or None,
        keep_bytes=int(options.keep_gb * 1e9) or None,
    )
    with _progress(total_s) as on_trace:
        taken = take(source, options.out, settings, on_trace)
    if options.json:
        print_json({"out": str(options.out), **asdict(taken)})
    else:
        threads, nodes = counted(taken.threads, "thread"), counted(taken.nodes, "node")
        print(
            f"{options.out}: {taken.end_s - taken.start_s} s of {threads} on {nodes}, "
            f"{counted(taken.jobs, 'job')}{', until Ctrl-C' if taken.interrupted else ''}"
        )


def _live(options: RecordOptions) -> tuple[Iterable[Trace], int]:
    """The seconds from now on, and how many."""
    from clustertwin.telemetry.ingest.rates import RateStream
    from clustertwin.telemetry.ingest.sources import watch
    from clustertwin.telemetry.ingest.sources.local_host import Host
    from clustertwin.telemetry.ingest.sources.single_exporter import Exporter

    if options.exporter:
        server = endpoint.build(options.exporter, options)
        source: Host | Exporter = Exporter(server, options.node, pages=options.node_channels)
    else:
        source = Host(node=options.node)
    stream = RateStream(options.interval_s, wide=options.node_channels)
    return watch(source, options.seconds, stream=stream), options.seconds


def _range(options: RecordOptions) -> tuple[Iterable[Trace], int]:
    """The seconds of a range that a server has, and how many."""
    from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
    from clustertwin.telemetry.recording.capture import hour_by_hour

    start_s = _epoch_s(options.start, "--start")
    end_s = _epoch_s(options.end or str(int(time.time())), "--end")
    if options.exporter or options.node or end_s <= start_s:
        raise SettingsError("--prometheus needs --start before --end, and allows neither --exporter nor --node")
    server = endpoint.build(options.prometheus, options)
    history = Prometheus(server, matchers=options.matchers, node_channels=options.node_channels)
    traces = hour_by_hour(
        history, start_s, end_s, interval_s=options.interval_s, wide=options.node_channels, on_hole=_report_hole
    )
    return traces, end_s - start_s


def _report_hole(start_s: int, end_s: int) -> None:
    first, last = (datetime.fromtimestamp(each, UTC).strftime("%Y-%m-%d %H:%M:%S") for each in (start_s, end_s))
    err.print(f"no samples from {first} to {last} UTC: left out", soft_wrap=True)


def _epoch_s(text: str, option: str) -> int:
    try:
        return (
            int(float(text)) if text.replace(".", "", 1).isdecimal() else int(datetime.fromisoformat(text).timestamp())
        )
    except (ValueError, OverflowError):
        raise SettingsError(f"{option} {text!r}: use epoch seconds or a date like 2026-11-15T22:00:00+00:00") from None


@contextmanager
def _progress(total_s: int) -> Iterator[Callable[[Trace], None]]:
    """A progress bar of seconds on standard error; yields the function to call with each trace."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("recorded"), BarColumn(), MofNCompleteColumn(), TextColumn("s"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task, begin_s = progress.add_task("", total=total_s), 0

        def on_trace(trace: Trace) -> None:
            nonlocal begin_s
            begin_s = begin_s or trace.start_s
            progress.update(task, completed=min(trace.end_s - begin_s, total_s))

        yield on_trace
