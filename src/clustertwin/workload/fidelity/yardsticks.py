"""A real log -> the rows every report has besides: what perfect looks like, and what the simplest generator gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.workload.fidelity.sample import Sample

BLOCK_JOBS = 250


@dataclass(frozen=True, slots=True)
class Pair:
    """Two samples to be compared."""

    name: str
    real: Sample
    synthetic: Sample


def bootstrap(real: Sample, rng: np.random.Generator) -> Pair:
    """Real jobs drawn one by one: perfect rows, no order at all, and every one a copy."""
    drawn = real.rows(rng.integers(0, len(real), len(real)), "IID bootstrap")
    return Pair("IID bootstrap", real, drawn)


def halves(real: Sample) -> Pair:
    """The first half against the second: a machine's users change with the months."""
    cut = len(real) // 2
    everything = np.arange(len(real))
    first, second = real.rows(everything[:cut], "first half"), real.rows(everything[cut:], "second half")
    return Pair("real, first half against second half", first, second)


def interleaved(real: Sample, block: int = BLOCK_JOBS) -> Pair:
    """Every other block of jobs against the blocks between: the same months on both sides."""
    block = min(block, max(1, len(real) // 4))
    odd = (np.arange(len(real)) // block) % 2 == 1
    even_rows, odd_rows = real.rows(np.flatnonzero(~odd), "even blocks"), real.rows(np.flatnonzero(odd), "odd blocks")
    return Pair(f"real, interleaved blocks of {block}", even_rows, odd_rows)


def yardsticks(real: Sample, rng: np.random.Generator) -> tuple[Pair, ...]:
    """Best first."""
    return interleaved(real), halves(real), bootstrap(real, rng)
