"""The heat map in the terminal: ratios -> coloured cells. If there is not enough room, a line shows two threads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from clustertwin.service.terminal.board import Heat

#: Colours from 0 to 1 for each channel; the same hues as on the pages.
STOPS = {
    "busy": ("#1b2629", "#1b5b56", "#37ab9e", "#8fe9de"),
    "user": ("#1b2629", "#1b5b56", "#37ab9e", "#8fe9de"),
    "system": ("#1b2629", "#3d3372", "#957be8", "#e8e0ff"),
    "iowait": ("#1b2629", "#5f3d0c", "#dd8f22", "#ffe9c2"),
}
CHANNELS = tuple(STOPS)
LEVELS = 16
UNKNOWN = Style(color="#5f7177")
LABEL = 8  # width in cells


def palette(channel: str) -> list[str]:
    """`LEVELS` colours from 0 to 1."""
    stops = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in STOPS[channel]])
    places = np.linspace(0, len(stops) - 1, LEVELS)
    mixed = np.stack([np.interp(places, range(len(stops)), stops[:, i]) for i in range(3)], axis=1).round().astype(int)
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in mixed]


def quantise(ratios: NDArray[np.float32]) -> NDArray[np.int8]:
    """[0, 1] -> 0 … LEVELS-1; NaN -> -1."""
    known = ~np.isnan(ratios)
    levels = np.full(ratios.shape, -1, np.int8)
    levels[known] = np.clip(ratios[known] * LEVELS, 0, LEVELS - 1).astype(np.int8)
    return levels


class HeatStrip(Widget):
    """One cell for each second, newest on the right."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.heat: Heat | None = None
        self.channel = "busy"

    def show(self, heat: Heat | None, channel: str) -> None:
        self.heat, self.channel = heat, channel
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if self.heat is None:
            return Strip.blank(self.size.width)
        height, threads = self.size.height, len(self.heat.cpus)
        halves = threads > height
        rows = [2 * y, 2 * y + 1] if halves else [y]
        if rows[0] >= threads:
            return Strip.blank(self.size.width)
        if halves and threads > 2 * height and y == height - 1:
            return Strip([Segment(f"… {threads - rows[0]} more threads", UNKNOWN)]).adjust_cell_length(self.size.width)
        seconds = self.size.width - LABEL
        levels = [self._levels(row, seconds) for row in rows if row < threads]
        label = Segment(f"cpu{self.heat.cpus[rows[0]]:<{LABEL - 3}}", Style(dim=True))
        cells = _pairs(levels[0], levels[-1], palette(self.channel)) if halves else _cells(levels[0], self.channel)
        return Strip([label, *cells]).adjust_cell_length(self.size.width)

    def _levels(self, row: int, seconds: int) -> NDArray[np.int8]:
        """The last `seconds` of a thread, padded with unknown on the left."""
        assert self.heat is not None
        ratios = self.heat.ratios[self.channel][row, -seconds:]
        return np.concatenate([np.full(seconds - len(ratios), -1, np.int8), quantise(ratios)])


def _cells(levels: NDArray[np.int8], channel: str) -> list[Segment]:
    colours = palette(channel)
    return [Segment("·", UNKNOWN) if level < 0 else Segment(" ", Style(bgcolor=colours[level])) for level in levels]


def _pairs(upper: NDArray[np.int8], lower: NDArray[np.int8], colours: list[str]) -> list[Segment]:
    """Two threads in one line: the foreground of the half block shows the upper one, the background the lower one."""
    segments = []
    for above, below in zip(upper, lower, strict=True):
        if above < 0 and below < 0:
            segments.append(Segment("·", UNKNOWN))
            continue
        front = colours[above] if above >= 0 else "#11181b"
        segments.append(Segment("▀", Style(color=front, bgcolor=colours[below] if below >= 0 else "#11181b")))
    return segments
