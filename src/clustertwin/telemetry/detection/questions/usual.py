"""What is usual: blocks of signals -> their centre, spread and highest level; and the usual of a program from its runs.

A level that was reached before is usual, however far from the centre it lies: a check-point or an I/O phase that the
job had already is not a change. `spread` is measured between blocks of half a minute, so a job that is unsteady by
itself needs a larger effect.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled
from clustertwin.telemetry.detection.questions.job_parts import SIGNALS

Table = NDArray[np.float32]  # (row, signal)
MOST_RUNS = 32  # kept of each program, the newest
MOST_SIGNALS, MOST_TOTAL, LARGEST = 256, 10**9, 1e6  # in a document
MIXED = 0.05  # of the threads' time, that half of the runs of a name are apart from their median in idle time
UNSURE = 0.02  # added to the spread of one block; with more blocks it is better known


class Usual(NamedTuple):
    """One row per part. NaN: nothing is known."""

    centre: Table
    spread: Table
    lowest: Table
    highest: Table

    def take(self, rows: NDArray[np.intp]) -> Usual:
        return Usual(*(table[rows] for table in self))


def nothing_usual(rows: int) -> Usual:
    return Usual(*(np.full((rows, len(SIGNALS)), np.nan, np.float32) for _ in range(4)))


@compiled
def summarise_blocks(blocks, counts, filled, least, centre, spread, lowest, highest):  # type: ignore[no-untyped-def]
    """blocks (row, block, signal), counts (the same) -> the four tables; NaN with fewer than `least` counted blocks."""
    for row in range(blocks.shape[0]):
        n_blocks = filled[row]
        values = np.empty(max(n_blocks, 1), np.float32)
        for s in range(blocks.shape[2]):
            n = 0
            for b in range(n_blocks):
                if counts[row, b, s] and not np.isnan(blocks[row, b, s]):
                    values[n] = blocks[row, b, s]
                    n += 1
            if n < least:
                centre[row, s] = spread[row, s] = lowest[row, s] = highest[row, s] = np.nan
                continue
            known = values[:n]
            known.sort()
            middle = (known[(n - 1) // 2] + known[n // 2]) / 2
            centre[row, s], lowest[row, s], highest[row, s] = middle, known[0], known[n - 1]
            away = np.abs(known - middle)
            away.sort()
            # Few blocks underestimate the spread.
            spread[row, s] = 1.4826 * (away[(n - 1) // 2] + away[n // 2]) / 2 * (1 + 4 / n) + UNSURE / n


@dataclass(frozen=True, slots=True)
class ProgramUsual:
    """The runs of one program, of one user or of the site: what each was usually like."""

    runs: NDArray[np.float32]  # (run, 4, signal) centre, spread, lowest and highest of each run
    total: int = 0  # runs seen, with those that are no longer kept

    def add(self, run: NDArray[np.float32]) -> ProgramUsual:
        """With one more run (4, signal)."""
        return ProgramUsual(np.concatenate([self.runs, run[None]])[-MOST_RUNS:], self.total + 1)

    @property
    def is_mixed(self) -> bool:
        """Whether its runs are not alike: a name that many scripts have says nothing."""
        idle = self.runs[:, 0, SIGNALS.index("idle")]
        known = idle[~np.isnan(idle)]
        return bool(len(known)) and float(np.median(np.abs(known - np.median(known)))) > MIXED

    def summary(self) -> NDArray[np.float32]:
        """(4, signal) of all runs. The spread includes the differences between runs.

        A level counts as usual if half of the runs reach it. So the phases of a program are learnt although nobody
        vets its runs, and a fault of some of them is not.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a signal that no run knows stays NaN
            centres = self.runs[:, 0]
            between = 1.4826 * np.nanmedian(np.abs(centres - np.nanmedian(centres, axis=0)), axis=0)
            return np.stack(
                [
                    np.nanmedian(centres, axis=0),
                    np.sqrt(np.nanmedian(self.runs[:, 1], axis=0) ** 2 + between**2),
                    np.nanmedian(self.runs[:, 2], axis=0),
                    np.nanmedian(self.runs[:, 3], axis=0),
                ]
            ).astype(np.float32)


NO_RUNS = ProgramUsual(np.empty((0, 4, len(SIGNALS)), np.float32))


def programs_to_json(programs: Mapping[str, ProgramUsual]) -> dict[str, Any]:
    """The tables as plain numbers; None is unknown."""
    rows = {name: {"total": usual.total, "runs": _plain(usual.runs)} for name, usual in programs.items()}
    return {"signals": list(SIGNALS), "programs": rows}


def programs_from_json(document: Mapping[str, Any]) -> dict[str, ProgramUsual]:
    """The tables of a document of this or an older version: signals are matched by name.

    ValueError, TypeError, KeyError, AttributeError or OverflowError for anything else; the caller knows the file.
    """
    names = document["signals"]
    if not isinstance(names, list) or not 0 < len(names) <= MOST_SIGNALS or len(set(names)) < len(names):
        raise ValueError("the signals are not a list of different names")
    known = [name for name in SIGNALS if name in names]
    places, stored_places = [SIGNALS.index(name) for name in known], [names.index(name) for name in known]
    out = {}
    for program, row in document["programs"].items():
        stored, total = np.array(row["runs"], np.float64), row["total"]
        if stored.shape[1:] != (4, len(names)) or np.isinf(stored).any() or (np.abs(stored) > LARGEST).any():
            raise ValueError(f"the runs of {program[:40]!r} are not tables of {len(names)} signals")
        if type(total) is not int or not len(stored) <= total <= MOST_TOTAL:
            raise ValueError(f"{program[:40]!r} cannot have {str(total)[:20]} runs")
        runs = np.full((min(len(stored), MOST_RUNS), 4, len(SIGNALS)), np.nan, np.float32)
        runs[:, :, places] = stored[-MOST_RUNS:, :, stored_places]
        out[program] = ProgramUsual(runs, total)
    return out


def _plain(runs: NDArray[np.float32]) -> list[Any]:
    values = np.round(runs.astype(np.float64), 5).astype(object)
    values[np.isnan(runs)] = None
    plain: list[Any] = values.tolist()
    return plain
