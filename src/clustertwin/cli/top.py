"""`twin top`: this host's hardware threads, an exporter's, or a whole service's, live in the terminal."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clustertwin.cli.app import group
from clustertwin.cli.output import Json, print_json
from clustertwin.core.extras import require
from clustertwin.core.traces import Trace
from clustertwin.service.words import ranges

app = group()

COLOURS = {"user": "green", "system": "red", "iowait": "yellow", "other": "bright_black"}
LEVELS = " ▁▂▃▄▅▆▇█"
HISTORY_S = 60
UNKNOWN = "?"


class Screen:
    """The last minute of one node's threads; rich draws it."""

    def __init__(self) -> None:
        self.last: Trace | None = None
        self.busy: deque[dict[int, float]] = deque(maxlen=HISTORY_S)  # a second each: cpu -> busy ratio, NaN unknown

    def add(self, trace: Trace) -> None:
        other = trace.schema.index("other")
        for second in range(trace.values.shape[1]):
            busy = np.where(trace.valid[:, second], 1 - trace.values[:, second, other], np.nan)
            self.busy.append(dict(zip(trace.cpus, busy.tolist(), strict=True)))
        self.last = trace

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.last is None:
            yield Text("warming up: a ratio needs two readings, a second apart", style="dim")
            return
        trace = self.last
        rows = max((options.height or console.height) - 4 - min(len(trace.spans), 5), 4)
        columns = -(-len(trace.cpus) // rows)
        width = max(options.max_width // columns - 2, 16)
        yield self._title(trace)
        grid = Table.grid(padding=(0, 2))
        cells = [self._thread(trace, i, width) for i in range(len(trace.cpus))]
        for row in range(min(rows, len(cells))):
            grid.add_row(*cells[row::rows])
        yield grid
        for span in trace.spans[:5]:
            yield Text(f"job {span.job} on threads {ranges(span.cpus)}", style="cyan")

    def _title(self, trace: Trace) -> Text:
        known = trace.values[trace.valid]  # (second, channel)
        text = Text(f"{trace.node}  {len(trace.cpus)} threads  ", style="bold")
        for name, mean in zip(trace.schema.names, known.mean(axis=0) if len(known) else [], strict=False):
            text.append(f"  ■ {name} {mean:4.0%}", style=COLOURS.get(name, "white"))
        return text

    def _thread(self, trace: Trace, row: int, width: int) -> Text:
        cpu = trace.cpus[row]
        text = Text(f"cpu{cpu:<4}")
        bar, past = max(width // 3, 8), max(width - width // 3 - 8, 0)
        if trace.valid[row, -1]:
            edges = np.rint(np.cumsum(trace.values[row, -1, :4]) * bar).astype(int)
            for name, size in zip(trace.schema.names, np.diff(edges, prepend=0), strict=False):
                text.append(("█" if name != "other" else "·") * int(size), style=COLOURS[name])
        else:
            text.append(UNKNOWN * bar, style="dim")
        text.append(" ")
        for second in list(self.busy)[-past:] if past else []:
            busy = second.get(cpu, np.nan)
            text.append(UNKNOWN if np.isnan(busy) else LEVELS[round(busy * 8)], style="blue")
        return text


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
    from clustertwin.service.terminal.app import Top
    from clustertwin.service.terminal.host import HostFeed
    from clustertwin.service.terminal.remote import RemoteFeed

    feed = RemoteFeed(url, token) if url else HostFeed(_traces(exporter, seconds), exporter or "this host")
    screen = Top(feed)
    screen.run()
    return int(screen.return_code or 0)


def _snapshot(url: str, token: str) -> object:
    from clustertwin.service.terminal.remote import RemoteFeed

    return RemoteFeed(url, token).snapshot()


def _threads(exporter: str, seconds: float, json: bool) -> None:
    seconds = seconds or (float("inf") if sys.stdout.isatty() and not json else 5.0)
    screen, traces = Screen(), _traces(exporter, seconds)
    try:
        if json or not sys.stdout.isatty():
            for trace in traces:
                screen.add(trace)
            print_json(_summary(screen)) if json else Console().print(screen)
        else:
            with Live(screen, screen=True, auto_refresh=False) as live:
                for trace in traces:
                    screen.add(trace)
                    live.refresh()
    except KeyboardInterrupt:
        raise typer.Exit from None


def _traces(exporter: str, seconds: float) -> Iterator[Trace]:
    from clustertwin.telemetry.sources import watch

    if exporter:
        from clustertwin.telemetry.sources.exporter import Exporter
        from clustertwin.telemetry.sources.http import Endpoint

        return watch(Exporter(Endpoint(exporter)), seconds)
    from clustertwin.telemetry.sources.host import Host

    return watch(Host(), seconds)


def _summary(screen: Screen) -> dict[str, object]:
    if screen.last is None:
        return {"threads": {}}
    trace = screen.last
    rows = zip(trace.cpus, trace.values[:, -1], trace.valid[:, -1], strict=True)
    threads = {
        cpu: dict(zip(trace.schema.names, map(float, ratios), strict=True)) if known else None
        for cpu, ratios, known in rows
    }
    return {"node": trace.node, "second": trace.end_s - 1, "threads": threads}
