"""Store ratios as single bytes: (row, time, channel) float32 <-> (row, stored, time) uint8, 255 where invalid.

The kernel counts in hundredths of a second, so a CPU ratio is a whole number of hundredths, or close to one: a stored
ratio is off by at most 0.005. The first channel of a simplex is not stored: it is one minus the others (off by at
most 0.015 with four channels), so that the ratios read back always sum to one. The first channel is left out because on
a busy thread `user` varies with each of the others, and would cost most. In the rare second whose rounded parts exceed
one, the excess is subtracted from the largest part (then off by at most 0.01). Bounded channels are stored in steps of
1/250 (off by at most 0.002).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema

INVALID = 255
SIMPLEX_STEPS = 100  # the kernel's USER_HZ
BOUNDED_STEPS = 250
#: How far a ratio may be outside [0, 1], and the sum of a simplex from one, before the second counts as invalid.
SLACK, SUM_SLACK = 1e-3, 1e-2
_STEP = {steps: np.float32(1 / steps) for steps in (SIMPLEX_STEPS, BOUNDED_STEPS)}


@dataclass(frozen=True, slots=True)
class Ticks:
    """How the channels of a schema are stored: which ones, in how many steps, and which channel is left out."""

    channels: int
    stored: tuple[int, ...]  # channel index of each stored row
    steps: tuple[int, ...]  # steps of each stored row
    rests: tuple[tuple[int, tuple[int, ...]], ...]  # (channel that is left out, stored rows of its simplex)

    @classmethod
    def of(cls, schema: Schema) -> Ticks:
        left_out = {indices[0]: indices[1:] for indices in schema.simplexes.values() if len(indices) > 1}
        stored = tuple(i for i in range(len(schema)) if i not in left_out)
        bounded = set(schema.bounded)
        return cls(
            channels=len(schema),
            stored=stored,
            steps=tuple(BOUNDED_STEPS if i in bounded else SIMPLEX_STEPS for i in stored),
            rests=tuple((rest, tuple(stored.index(i) for i in others)) for rest, others in left_out.items()),
        )

    def quantise(self, values: NDArray[np.float32], valid: NDArray[np.bool_], out: NDArray[np.uint8]) -> int:
        """Fill `out` (row, stored, time) from (row, time, channel); how many valid seconds were not ratios."""
        if not values.size:
            return 0
        bad = self._not_ratios(values)  # (row, time), or None
        refused = 0
        if bad is not None:
            refused = int(np.count_nonzero(bad & valid))
            values, valid = np.where(bad[:, :, None], np.float32(0), values), valid & ~bad
        scaled = np.empty(values.shape[:2], np.float32)
        for row, (channel, steps) in enumerate(zip(self.stored, self.steps, strict=True)):
            np.multiply(values[:, :, channel], np.float32(steps), out=scaled)
            np.rint(scaled, out=scaled)
            np.abs(scaled, out=scaled)  # a ratio of -1e-9 is zero, and -0.0 must not be cast to a byte
            out[:, row] = scaled
        for _, rows in self.rests:
            _subtract_excess(out, rows)
        if not valid.all():
            invalid = ~valid
            for row in range(len(self.stored)):
                out[:, row][invalid] = INVALID
        return refused

    def dequantise(self, ticks: NDArray[np.uint8], values: NDArray[np.float32], valid: NDArray[np.bool_]) -> None:
        """Fill `values` (row, time, channel) and `valid` (row, time) from (row, stored, time); 0 where invalid."""
        np.not_equal(ticks[:, 0], INVALID, out=valid)
        for row, channel in enumerate(self.stored):
            np.multiply(ticks[:, row], _STEP[self.steps[row]], out=values[:, :, channel])
        for rest, rows in self.rests:
            left = SIMPLEX_STEPS - ticks[:, rows[0]]  # wraps where invalid
            for row in rows[1:]:
                left -= ticks[:, row]
            np.multiply(left, _STEP[SIMPLEX_STEPS], out=values[:, :, rest])
        if not valid.all():
            values[~valid] = 0

    def _not_ratios(self, values: NDArray[np.float32]) -> NDArray[np.bool_] | None:
        """Where a value is NaN or outside [0, 1], or a simplex does not sum to one; None if nowhere."""
        bad: Any = None
        if not (values.min() >= -SLACK and values.max() <= 1 + SLACK):  # NaN fails both
            bad = np.any(~((values >= -SLACK) & (values <= 1 + SLACK)), axis=2)
        for rest, rows in self.rests:
            total = values[:, :, rest].copy()
            for row in rows:
                total += values[:, :, self.stored[row]]
            total -= 1
            np.abs(total, out=total)
            if not total.max() <= SUM_SLACK:
                off = ~(total <= SUM_SLACK)
                bad = off if bad is None else bad | off
        return bad


def _subtract_excess(ticks: NDArray[np.uint8], rows: tuple[int, ...]) -> None:
    """Where the stored parts of a simplex exceed one, subtract the excess from the largest."""
    total = ticks[:, rows[0]].astype(np.uint16)
    for row in rows[1:]:
        total += ticks[:, row]
    if total.max() <= SIMPLEX_STEPS:
        return
    cpu, time = np.nonzero(total > SIMPLEX_STEPS)
    parts = ticks[cpu[:, None], list(rows), time[:, None]]  # (n, row)
    largest = np.array(rows)[parts.argmax(axis=1)]
    ticks[cpu, largest, time] -= (total[cpu, time] - SIMPLEX_STEPS).astype(np.uint8)
