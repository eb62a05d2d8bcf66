"""Rings of the last seconds of channels: values of a row as they arrive -> (row, second, channel) up to any second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema

Rows = NDArray[np.intp]
#: The second of a slot without one. Recordings may begin at second 0, so that -1 is a second that is asked for.
_NONE = int(np.iinfo(np.int64).min)


class ChannelRings:
    """A ring of `length_s` seconds for each row. The channels are those of the first values."""

    def __init__(self, length_s: int) -> None:
        self.length_s = length_s
        self.schema: Schema | None = None
        self._free: list[int] = []
        self._values = np.empty((0, length_s, 0), np.float32)  # (row, slot, channel)
        self._second = np.empty((0, length_s), np.int64)  # (row, slot) which second the slot holds

    def __len__(self) -> int:
        """Rows, taken and free."""
        return len(self._second)

    def take_row(self) -> int:
        """An empty row."""
        if not self._free:
            rows = len(self)
            more = max(rows, 4)
            self._values = np.concatenate([self._values, np.empty((more, *self._values.shape[1:]), np.float32)])
            self._second = np.concatenate([self._second, np.empty((more, self.length_s), np.int64)])
            self._free = list(range(rows, rows + more))
        row = self._free.pop()
        self._second[row] = _NONE
        return row

    def free_row(self, row: int) -> None:
        self._free.append(row)

    def in_order(self, schema: Schema, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Values (…, channel) in the order of the channels kept here, NaN for those that are missing."""
        if self.schema is None:
            self.schema = schema
            self._values = np.empty((0, self.length_s, len(schema)), np.float32)
        if schema == self.schema:
            return values
        ordered = np.full((*values.shape[:-1], len(self.schema)), np.nan, np.float32)
        for column, name in enumerate(self.schema.names):
            if name in schema.names:
                ordered[..., column] = values[..., schema.names.index(name)]
        return ordered

    def write(self, rows: Rows, values: NDArray[np.float32], end_s: int) -> NDArray[np.bool_]:
        """Keep values (row, second, channel), the last of them of the second before `end_s`; all NaN is unknown.

        A second that comes again is overwritten. Returns (row,) whether anything is known.
        """
        if values.shape[1] == 1:  # the usual case, without a grid of indices
            slot = (end_s - 1) % self.length_s
            known: NDArray[np.bool_] = np.logical_not(np.isnan(values[:, 0]).all(axis=1))
            self._values[rows, slot] = values[:, 0]
            self._second[rows, slot] = np.where(known, end_s - 1, _NONE)
            return known
        values = values[:, -self.length_s :]
        seconds = np.arange(end_s - values.shape[1], end_s)
        slots = seconds % self.length_s
        known = np.logical_not(np.isnan(values).all(axis=2))
        self._values[rows[:, None], slots] = values
        self._second[rows[:, None], slots] = np.where(known, seconds, _NONE)
        return np.logical_or.reduce(known, axis=1)

    def read(self, rows: Rows, end_s: int) -> NDArray[np.float32]:
        """The seconds [end_s - length_s, end_s), (row, second, channel), NaN where unknown."""
        seconds = np.arange(end_s - self.length_s, end_s)
        slots = seconds % self.length_s
        values = self._values[rows[:, None], slots]
        values[self._second[rows[:, None], slots] != seconds] = np.nan
        return values
