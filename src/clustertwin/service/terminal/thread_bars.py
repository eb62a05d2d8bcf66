"""`twin top --plain`: the traces of one node -> a bar for each thread, or the last second as numbers."""

from __future__ import annotations

from collections import deque
from math import isnan

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from clustertwin.core.channels import SPREAD, label_of
from clustertwin.core.formatting import percent, ranges
from clustertwin.core.traces import Trace
from clustertwin.service.terminal.local_board import newest_node_channels

COLOURS = {"user": "green", "system": "red", "iowait": "yellow", "other": "bright_black"}
LEVELS = " ▁▂▃▄▅▆▇█"
HISTORY_S = 60
UNKNOWN = "?"


class ThreadBars:
    """The last minute of one node's threads, printed by rich."""

    def __init__(self) -> None:
        self.last: Trace | None = None
        self.busy: deque[dict[int, float]] = deque(
            maxlen=HISTORY_S
        )  # for each second: cpu -> busy ratio; NaN is unknown

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
        for name, value in newest_node_channels(trace).items():
            if name in SPREAD.names:  # the others do not fit on the line
                text.append(f"  {label_of(name)} {percent(value)}", style="dim")
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

    def summary(self) -> dict[str, object]:
        """The last second as numbers; None for a thread without data."""
        if self.last is None:
            return {"threads": {}}
        trace = self.last
        rows = zip(trace.cpus, trace.values[:, -1], trace.valid[:, -1], strict=True)
        threads = {
            cpu: dict(zip(trace.schema.names, map(float, ratios), strict=True)) if known else None
            for cpu, ratios, known in rows
        }
        unknown_is_none = {name: None if isnan(v) else v for name, v in newest_node_channels(trace).items()}
        return {"node": trace.node, "second": trace.end_s - 1, "threads": threads, "node_channels": unknown_is_none}
