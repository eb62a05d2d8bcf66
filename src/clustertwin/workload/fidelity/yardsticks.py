"""A real log -> the reference rows of every report: real against real, and the IID bootstrap."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog

BLOCK_JOBS = 250


@dataclass(frozen=True, slots=True)
class LogPair:
    """Two logs to compare, and the name of the comparison."""

    name: str
    real: ComparedLog
    synthetic: ComparedLog


def bootstrap(real: ComparedLog, rng: np.random.Generator) -> LogPair:
    """Real jobs drawn independently with replacement: exact rows, no order, and every job is a copy."""
    drawn = real.rows(rng.integers(0, len(real), len(real)), "IID bootstrap")
    return LogPair("IID bootstrap", real, drawn)


def halves(real: ComparedLog) -> LogPair:
    """The first half against the second; shows how much the users of a machine change over months."""
    cut = len(real) // 2
    everything = np.arange(len(real))
    first, second = _part(real, everything[:cut], "first half"), _part(real, everything[cut:], "second half")
    return LogPair("real, first half against second half", first, second)


def interleaved(real: ComparedLog, block: int = BLOCK_JOBS) -> LogPair:
    """Even blocks of jobs against odd blocks, so that both sides cover the same months."""
    block = min(block, max(1, len(real) // 4))
    odd = (np.arange(len(real)) // block) % 2 == 1
    even_rows, odd_rows = (
        _part(real, np.flatnonzero(~odd), "even blocks"),
        _part(real, np.flatnonzero(odd), "odd blocks"),
    )
    return LogPair(f"real, interleaved blocks of {block}", even_rows, odd_rows)


def yardsticks(real: ComparedLog, rng: np.random.Generator) -> tuple[LogPair, ...]:
    """The closest comparison comes first."""
    return interleaved(real), halves(real), bootstrap(real, rng)


def _part(real: ComparedLog, which: NDArray[np.intp], name: str) -> ComparedLog:
    """Jobs of the log one after another. Their intervals and dates stay: without the gaps, hours would move."""
    return replace(real.rows(which, name), dates_s=real.jobs.submit_s[which])
