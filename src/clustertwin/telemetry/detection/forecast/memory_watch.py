"""Memory over hours: moments as they come -> forecasts of leaks that are too slow for one moment.

A moment holds five pieces. The watch keeps the mean of each half minute of every node and job, for up to eight hours,
so that growth can have lasted long enough for a forecast hours ahead.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.forecast.memory_forecast import (
    WINDOWS_S,
    MemoryForecast,
    Numbers,
    Place,
    forecasts,
    memory_levels,
    window_of_seconds,
)
from clustertwin.telemetry.detection.forecast.memory_growth import BEFORE, GrowthWindow
from clustertwin.telemetry.moments.moment import Moment

#: The length of a piece, and how many are kept of each row.
PIECE_S, PIECES = 30, 960
#: Windows in pieces: 4 minutes to 7 hours, each a sixth longer than the one before.
WINDOWS = tuple(dict.fromkeys(round(8 * 1.18**k) for k in range(29)))
#: Rows that are kept: 50,000 take 190 MB. Rows beyond it are forecast from their moment only.
MOST_ROWS = 50_000
#: Between two looks at the same rows: a forecast changes slowly.
EVERY_S = 10


class KeptMemory(NamedTuple):
    """The pieces of a watch, to go on with after a restart."""

    places: tuple[Place, ...]
    pieces: NDArray[np.float32]  # (place, piece) at most `PIECES`
    piece: int  # of the last column


class MemoryWatch:
    """Keeps the pieces of the nodes and jobs of the last moment; a job that has ended is forgotten."""

    def __init__(self) -> None:
        self._places: dict[Place, int] = {}
        self._pieces = np.empty((0, PIECES), np.float32)  # (row, piece), the newest last
        self._piece = -1  # the piece of the last column
        self._found: tuple[int, list[MemoryForecast]] = (-EVERY_S, [])

    def kept(self, most: int) -> KeptMemory:
        """At most this many rows, without the time before the first known piece."""
        places, rows = tuple(self._places)[:most], list(self._places.values())[:most]
        known = ~np.isnan(self._pieces[rows])
        first = int(np.argmax(known.any(axis=0))) if known.any() else PIECES
        return KeptMemory(places, self._pieces[rows, first:], self._piece)

    def go_on(self, kept: KeptMemory) -> None:
        """Continue with the pieces of an earlier watch."""
        self._places = {place: row for row, place in enumerate(kept.places)}
        unknown = np.full((len(kept.places), PIECES - kept.pieces.shape[1]), np.nan, np.float32)
        self._pieces, self._piece = np.hstack([unknown, kept.pieces]), kept.piece

    def forecast(self, moment: Moment) -> list[MemoryForecast]:
        """The forecasts of this moment, soonest first."""
        end_s, found = self._found
        if 0 <= moment.end_s - end_s < EVERY_S:
            return found
        places, levels = memory_levels(moment)
        self._keep(places, levels, moment.end_s)
        kept = np.array([self._places.get(place, -1) for place in places], np.intp)
        hours = np.vstack([self._pieces, np.full((1, PIECES), np.nan, np.float32)])[kept]
        windows = [window_of_seconds(levels, samples, _before(hours, samples)) for samples in WINDOWS_S]
        windows += [GrowthWindow(hours, float(PIECE_S), samples, hours[:, :0]) for samples in WINDOWS]
        found = [
            MemoryForecast(*place, moment.end_s, *numbers[:-1], self._grew_s(place, numbers, moment.end_s))
            for place, numbers in forecasts(places, levels, windows)
        ]
        found.sort(key=lambda each: each.remaining_s)
        self._found = moment.end_s, found
        return found

    def _grew_s(self, place: Place, numbers: Numbers, now_s: int) -> float:
        """How long memory has grown: as long as was forecast from, or for as many pieces as it grew half as fast."""
        *_, rate, length_s = numbers
        row = self._places.get(place)
        if row is None:
            return length_s
        grew = np.diff(self._pieces[row]) >= 0.5 * rate * PIECE_S  # False where a piece is unknown
        begun_s = now_s - (self._piece + 1) * PIECE_S  # of the piece that is not complete yet
        return max(length_s, float((np.argmin(np.append(grew[::-1], False)) + 1) * PIECE_S + begun_s))

    def _keep(self, places: list[Place], levels: NDArray[np.float32], end_s: int) -> None:
        """Add the pieces that are complete now, and drop the rows that are gone."""
        piece = end_s // PIECE_S - 1  # the last complete one
        passed = piece - self._piece
        if passed == 0 and self._places.keys() >= set(places):
            return
        rows = dict(zip(places[:MOST_ROWS], range(len(places)), strict=False))
        pieces = np.full((len(rows), PIECES), np.nan, np.float32)
        if 0 <= passed < PIECES:  # otherwise the clock was set, or nothing was heard for eight hours
            for place, row in rows.items():
                if place in self._places:
                    pieces[row, : PIECES - passed] = self._pieces[self._places[place], passed:]
        # The pieces that this moment holds completely, also those that were kept before: late seconds are in now.
        end = levels.shape[1] - (end_s - (piece + 1) * PIECE_S)
        whole = max(end // PIECE_S, 0)
        if whole:
            block = levels[: len(rows), end - whole * PIECE_S : end].reshape(len(rows), whole, PIECE_S)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a piece without a known second
                means = np.nanmean(block, axis=2)
            pieces[:, -whole:] = np.where(np.isnan(means), pieces[:, -whole:], means)
        self._places, self._pieces, self._piece = rows, pieces, piece


def _before(pieces: NDArray[np.float32], window_s: int) -> NDArray[np.float32]:
    """The pieces that ended before the last `window_s` seconds, `BEFORE` times as many seconds."""
    end = PIECES - -(-window_s // PIECE_S)
    return pieces[:, end - -(-BEFORE * window_s // PIECE_S) : end]
