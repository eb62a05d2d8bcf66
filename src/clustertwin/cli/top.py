"""`twin top`: the hardware threads of this host, of an exporter or of a service, live in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from math import isnan

import typer
from rich.live import Live

from clustertwin.cli.app import group
from clustertwin.cli.output import Json, OutputConsole, print_json, print_table
from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.core.formatting import UNKNOWN, duration, number
from clustertwin.core.traces import Trace

app = group()


@app.command()
def top(
    exporter: str = typer.Option("", help="URL of an exporter; default: this host."),
    url: str = typer.Option("", help="URL of a running `twin up` or `twin serve`; also shows scores, jobs and events."),
    token: str = typer.Option("", envvar="CLUSTERTWIN_TOKEN", help="Token for a service that needs one."),
    seconds: float = typer.Option(
        0.0,
        min=0.0,
        help="Stop after this time; 0: run until q or Ctrl-C (outside a terminal: 5 s). Not used with --url, "
        "which prints the present state once outside a terminal.",
    ),
    plain: bool = typer.Option(False, help="Show threads only, without panes and keys."),
    json: bool = Json,
) -> None:
    """Show hardware threads live: how each second is spent, and the last minutes. With --url, also jobs and events."""
    if url and exporter:
        raise SettingsError("set --url or --exporter, not both")
    if url and json:
        print_json(_snapshot(url, token))
    elif sys.stdout.isatty() and not json and (url or (not plain and find_spec("textual"))):
        raise typer.Exit(_panes(exporter, url, token, seconds or float("inf")))
    elif url:
        _service(url, token)
    else:
        _threads(exporter, seconds, json)


def _panes(exporter: str, url: str, token: str, seconds: float) -> int:
    require("textual", "service")
    from clustertwin.service.terminal.local_board import LocalBoards
    from clustertwin.service.terminal.remote_board import RemoteBoards
    from clustertwin.service.terminal.top_app import TopApp

    source = RemoteBoards(url, token) if url else LocalBoards(_traces(exporter, seconds), exporter or "this host")
    screen = TopApp(source)
    screen.run()
    return int(screen.return_code or 0)


def _snapshot(url: str, token: str) -> object:
    from clustertwin.service.terminal.remote_board import RemoteBoards

    return RemoteBoards(url, token).snapshot()


def _service(url: str, token: str) -> None:
    """The state of the service once, as text: nodes, jobs and open events."""
    from clustertwin.service.terminal.remote_board import RemoteBoards

    board = next(RemoteBoards(url, token).boards())
    print(f"{url}: {board.state}")
    nodes = [[line.node, line.threads, line.state, number(line.score), UNKNOWN if isnan(line.score) else line.anomalous]
             for line in board.nodes]  # fmt: skip
    print_table("nodes", ["node", "threads", "state", "score", "unusual threads"], nodes)
    jobs = [[line.job, line.owner, line.node, line.threads, duration(line.running_s)] for line in board.jobs]
    print_table("jobs", ["job", "owner", "nodes", "threads", "running for"], jobs, instead="No jobs are running.")
    events = [[line.event_id, line.title, line.node, number(line.score), line.why] for line in board.events]
    print_table("open events", ["event", "what", "nodes", "strength", "why"], events, instead="No open events.")


def _threads(exporter: str, seconds: float, json: bool) -> None:
    seconds = seconds or (float("inf") if sys.stdout.isatty() and not json else 5.0)
    from clustertwin.service.terminal.thread_bars import ThreadBars

    bars, traces = ThreadBars(), _traces(exporter, seconds)
    try:
        if json or not sys.stdout.isatty():
            for trace in traces:
                bars.add(trace)
            print_json(bars.summary()) if json else OutputConsole().print(bars)
        else:
            with Live(bars, screen=True, auto_refresh=False) as live:
                for trace in traces:
                    bars.add(trace)
                    live.refresh()
    except KeyboardInterrupt:
        raise typer.Exit from None


def _traces(exporter: str, seconds: float) -> Iterator[Trace]:
    from clustertwin.telemetry.ingest.sources import watch

    if exporter:
        from clustertwin.telemetry.ingest.sources.http import Endpoint
        from clustertwin.telemetry.ingest.sources.single_exporter import Exporter

        return watch(Exporter(Endpoint(exporter)), seconds)
    from clustertwin.telemetry.ingest.sources.local_host import Host

    return watch(Host(), seconds)
