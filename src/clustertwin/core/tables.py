"""Results as tables: named columns -> pandas, Arrow, and HTML for a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from clustertwin.core.extras import require

SHOWN_ROWS = 8  # in a notebook


class ColumnTable(ABC):
    """What every result with rows offers. A subclass returns its table: columns of one length.

    A dataclass that inherits from it is declared with `repr=False`, so that it prints as one line.
    """

    __slots__ = ()

    @abstractmethod
    def table(self) -> Mapping[str, Any]:
        """Name -> one-dimensional array."""

    def caption(self) -> str:
        """One line above the table in a notebook."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.caption()}>"

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each row."""
        return require("pandas", "pandas").DataFrame(dict(self.table()))

    def to_arrow(self) -> Any:
        """A pyarrow Table."""
        return require("pyarrow", "arrow").table({name: _plain(values) for name, values in self.table().items()})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface: polars, DuckDB, pandas and others read the table without a copy."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        return html_table(self.caption(), self.table())


def html_table(caption: str, columns: Mapping[str, Any]) -> str:
    """The first rows of a table as HTML; every text is escaped."""
    rows = max((len(values) for values in columns.values()), default=0)
    heads = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(values[i]))}</td>" for values in columns.values()) + "</tr>"
        for i in range(min(rows, SHOWN_ROWS))
    )
    more = f"<p>… {rows - SHOWN_ROWS:,} more rows</p>" if rows > SHOWN_ROWS else ""
    return f"<p>{escape(caption)}</p><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:.4g}"
    return str(value)


def _plain(values: Any) -> Any:
    """Arrow has no fixed-width text of numpy."""
    array = np.asarray(values)
    return array.tolist() if array.dtype.kind in "US" else array
