"""`twin top`: this host's hardware threads, an exporter's, or a whole service's, live in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec

import typer
from rich.console import Console
from rich.live import Live

from clustertwin.cli.app import group
from clustertwin.cli.output import Json, print_json
from clustertwin.core.extras import require
from clustertwin.core.traces import Trace

app = group()


@app.command()
def top(
    exporter: str = typer.Option("", help="URL of an exporter; this host if empty."),
    url: str = typer.Option("", help="URL of a running `twin up` or `twin serve`: scores, jobs and events too."),
    token: str = typer.Option("", envvar="CLUSTERTWIN_TOKEN", help="For a service that asks for one."),
    seconds: float = typer.Option(
        0.0,
        min=0.0,
        help="Of this host or an exporter: stop after so long; 0: until q or Ctrl-C (5 s outside a terminal).",
    ),
    plain: bool = typer.Option(False, help="Threads only, without panes and keys."),
    json: bool = Json,
) -> None:
    """Hardware threads live: where each second went, and the last minutes of each; of a service, all it knows."""
    if url and json:
        print_json(_snapshot(url, token))
    elif sys.stdout.isatty() and not json and (url or (not plain and find_spec("textual"))):
        raise typer.Exit(_panes(exporter, url, token, seconds or float("inf")))
    else:
        _threads(exporter, seconds, json)


def _panes(exporter: str, url: str, token: str, seconds: float) -> int:
    require("textual", "service")
    from clustertwin.service.terminal.local_board import HostFeed
    from clustertwin.service.terminal.remote_board import RemoteFeed
    from clustertwin.service.terminal.top_app import Top

    feed = RemoteFeed(url, token) if url else HostFeed(_traces(exporter, seconds), exporter or "this host")
    screen = Top(feed)
    screen.run()
    return int(screen.return_code or 0)


def _snapshot(url: str, token: str) -> object:
    from clustertwin.service.terminal.remote_board import RemoteFeed

    return RemoteFeed(url, token).snapshot()


def _threads(exporter: str, seconds: float, json: bool) -> None:
    seconds = seconds or (float("inf") if sys.stdout.isatty() and not json else 5.0)
    from clustertwin.service.terminal.threads import Screen

    screen, traces = Screen(), _traces(exporter, seconds)
    try:
        if json or not sys.stdout.isatty():
            for trace in traces:
                screen.add(trace)
            print_json(screen.summary()) if json else Console().print(screen)
        else:
            with Live(screen, screen=True, auto_refresh=False) as live:
                for trace in traces:
                    screen.add(trace)
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
