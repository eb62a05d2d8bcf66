"""The result of one part of the study: a `Section` of tables and figures, for the page, the terminal or JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.page import COLOURS


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain values. The first `baselines` rows are baselines that need no training.

    `title` and `columns` are keys of study.json.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    baselines: int = 0

    def to_json(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Picture:
    """An inline SVG and its caption."""

    title: str
    svg: str


@dataclass(frozen=True, slots=True)
class Section:
    name: str  # as on the command line
    title: str
    text: str  # the main result in a sentence or two, with its numbers
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "tables": {table.title: table.to_json() for table in self.tables}}


def mean_and_deviation(values: list[float] | tuple[float, ...], digits: int = 4) -> str:
    """`0.0064 ± 0.0002`: mean and standard deviation over models; empty if it is not defined for these data."""
    n = len(values)
    mean = sum(values) / n
    if math.isnan(mean):
        return ""
    deviation = (sum((value - mean) ** 2 for value in values) / max(n - 1, 1)) ** 0.5
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def number(value: float, digits: int) -> str:
    """A number for a cell; empty if it is not defined for these data."""
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def scatter_by_kind(axis: Any, x: NDArray[np.floating], y: NDArray[np.floating], label: NDArray[np.str_]) -> None:
    """Draw points (n,) in one colour for each kind, with a legend."""
    for i, kind in enumerate(sorted(set(label.tolist()))):
        rows = label == kind
        axis.scatter(x[rows], y[rows], s=7, alpha=0.6, color=COLOURS[i % len(COLOURS)], label=kind)
    axis.legend(frameon=False, labelcolor="linecolor")
