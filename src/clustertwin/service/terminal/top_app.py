"""The screen of `twin top`: boards -> nodes, a heat map of threads, jobs and events, and keys for verdicts."""

from __future__ import annotations

from math import isnan
from typing import ClassVar

import numpy as np
from rich.markup import escape
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Static
from textual.worker import get_current_worker

from clustertwin.core.channels import SPREAD, label_of
from clustertwin.core.errors import TwinError
from clustertwin.core.formatting import UNKNOWN, clock, duration, number, percent, visible_lines
from clustertwin.service.terminal.board import Board, BoardSource, EventLine, Heat, JobLine, NodeLine
from clustertwin.service.terminal.heatstrip import CHANNELS, HeatStrip

WIDEST = 16  # characters of a name
WIDEST_TITLE = 60  # of an event; the line below the table has all of it
STYLE = """
#title { height: 1; padding: 0 1; background: $boost; }
#left { width: 50; }
#nodes { height: 1fr; }
#heat-title { height: 1; padding: 0 1; color: $text-muted; }
#heat { height: 1fr; padding: 0 1; }
#below { height: 12; }
#jobs { width: 40; }
#events { height: 1fr; }
#why { height: auto; max-height: 4; padding: 0 1; color: $text-muted; }
DataTable { scrollbar-size-vertical: 1; overflow-x: hidden; }
DataTable > .datatable--header { background: $boost; color: $text-muted; text-style: none; }
"""


class TopApp(App[None]):
    """Each board replaces the last one; the selected rows stay selected."""

    CSS = STYLE
    TITLE = "twin top"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("tab", "focus_next", "next pane"),
        Binding("m", "channel", "next channel"),
        Binding("c", "vet('confirmed')", "confirm"),
        Binding("d", "vet('dismissed')", "dismiss"),
        Binding("n", "vet('new-normal')", "new normal"),
        Binding("u", "undo", "undo"),
    ]

    def __init__(self, source: BoardSource) -> None:
        super().__init__()
        self.source = source
        self.board = Board("warming up")
        self.channel = "busy"

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with Horizontal():
            with Vertical(id="left"):
                yield DataTable(id="nodes", cursor_type="row")
            with Vertical():
                yield Static(id="heat-title")
                yield HeatStrip("heat")
        with Horizontal(id="below"):
            yield DataTable(id="jobs", cursor_type="row")
            with Vertical():
                yield DataTable(id="events", cursor_type="row")
                yield Static(id="why")
        yield Footer()

    def on_mount(self) -> None:
        self._table("nodes").add_columns("node", "score", "unusual", "state")
        self._table("jobs").add_columns("job", "owner", "thr", "running")
        self._table("events").add_columns("what", "since", "strength", "verdict", "event")
        self._show(self.board)
        self.run_worker(self._follow, thread=True)

    def on_unmount(self) -> None:
        self.source.stop()

    def _follow(self) -> None:
        """Runs in a thread: a source can wait for the network."""
        worker = get_current_worker()
        try:
            for board in self.source.boards():
                if worker.is_cancelled:
                    return
                self.call_from_thread(self._show, board)
            if not worker.is_cancelled and self.is_running:
                self.call_from_thread(self.exit)  # the source has ended
        except TwinError as error:
            message = Text(f"twin: {visible_lines(str(error))}")  # text, not markup: a server may have written it
            self.call_from_thread(self.exit, return_code=error.exit_code, message=message)

    def _show(self, board: Board) -> None:
        self.board = board
        self.query_one("#title", Static).update(self._title(board))
        self.query_one(HeatStrip).show(board.heat, self.channel)
        self.query_one("#heat-title", Static).update(Text(_heading(board.heat, self.channel) if board.heat else ""))
        self._fill("nodes", {line.node: _node_cells(line) for line in board.nodes})
        self._fill("jobs", {line.job: _job_cells(line) for line in board.jobs})
        self._fill("events", {line.event_id: _event_cells(line) for line in board.events})
        self._explain()

    def _title(self, board: Board) -> Text:
        text = Text(f"{self.source.watches}  ", style="bold")
        text.append(board.state, style="yellow" if board.state != "watching" else "green")
        return text.append(f"  {clock(board.heat.end_s) if board.heat else ''}", style="dim")

    def _fill(self, name: str, rows: dict[str, tuple[str | Text, ...]]) -> None:
        """Replace the rows and keep the selection. Cells are text, not markup, because names come from users."""
        table = self._table(name)
        chosen = self._chosen(name)
        table.clear()
        for key, cells in rows.items():
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells), key=key)
        if chosen in rows:
            table.move_cursor(row=list(rows).index(chosen), scroll=False)

    def _table(self, name: str) -> DataTable[Text]:
        return self.query_one(f"#{name}", DataTable)

    def _chosen(self, name: str) -> str:
        table = self._table(name)
        if not table.row_count or not table.is_valid_row_index(table.cursor_row):
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def on_data_table_row_highlighted(self, message: DataTable.RowHighlighted) -> None:
        if message.data_table.id == "nodes" and message.data_table.has_focus:
            self.source.choose(str(message.row_key.value))
        if self.query("#why"):  # a last message can arrive while the screen closes
            self._explain()

    def _explain(self) -> None:
        event = self._event()
        why = (
            f"{event.title}. {event.why}"
            if event and event.title
            else event.why
            if event
            else "no open events"
            if self.source.vets
            else "scores need a service (twin up)"
        )
        self.query_one("#why", Static).update(Text(why))

    def _event(self) -> EventLine | None:
        chosen = self._chosen("events")
        return next((event for event in self.board.events if event.event_id == chosen), None)

    def action_channel(self) -> None:
        self.channel = CHANNELS[(CHANNELS.index(self.channel) + 1) % len(CHANNELS)]
        self._show(self.board)

    def action_vet(self, verdict: str) -> None:
        self._send(verdict)

    def action_undo(self) -> None:
        self._send("")

    def _send(self, verdict: str) -> None:
        """Send the verdict in a thread; an empty one undoes the last verdict."""
        event = self._event()
        if event is None:
            self.notify("no event is selected", severity="warning")
            return
        event_id = event.event_id

        def send() -> None:
            try:
                self.source.vet(event_id, verdict) if verdict else self.source.undo(event_id)
                self.call_from_thread(self.notify, escape(f"{verdict or 'undone'}: event {event_id}"))
            except TwinError as error:
                self.call_from_thread(self.notify, escape(str(error)), severity="error")

        self.run_worker(send, thread=True)


def _heading(heat: Heat, channel: str) -> str:
    """The node, the means of its last second, and what a cell shows."""
    last = {name: heat.ratios[name][:, -1:] for name in CHANNELS}
    means = [
        f"{_word(name)} {percent(float(np.nanmean(row)))}" for name, row in last.items() if not np.isnan(row).all()
    ]
    means += [
        f"{label_of(name)} {percent(value)}" for name, value in heat.node_channels.items() if name in SPREAD.names
    ]
    return f"{heat.node}   {', '.join(means)}   one cell: the share of a second that is {_word(channel)}"


def _word(channel: str) -> str:
    return "not idle" if channel == "busy" else channel


def _cut(name: str, widest: int = WIDEST) -> str:
    """Shorten a long name, so that the numbers stay on the screen."""
    return name if len(name) <= widest else f"{name[: widest - 1]}…"


def _node_cells(line: NodeLine) -> tuple[str | Text, ...]:
    score = Text(number(line.score), style="bold red" if line.anomalous else "")
    return _cut(line.node), score, f"{UNKNOWN if isnan(line.score) else line.anomalous} of {line.threads}", line.state


def _job_cells(line: JobLine) -> tuple[str | Text, ...]:
    return _cut(line.job), _cut(line.owner) or UNKNOWN, str(line.threads), duration(line.running_s)


def _event_cells(event: EventLine) -> tuple[str | Text, ...]:
    since = clock(event.onset_s)[5:16]
    score = Text(
        UNKNOWN if isnan(event.score) else number(event.score), style="bold red" if event.end_s is None else ""
    )
    verdict = event.verdict or ("open" if event.end_s is None else "closed")
    what = event.title or f"{event.job or event.node}, {event.threads} threads"
    return _cut(what, WIDEST_TITLE), since, score, verdict, event.event_id
