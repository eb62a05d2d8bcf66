"""Keep a CPU busy with arithmetic: seconds -> matrix products for about that long, all user time."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

Block = NDArray[np.float64]


def new_block(rng: np.random.Generator) -> Block:
    """A matrix that fits the first caches, so that a product takes well under a millisecond."""
    return rng.random((96, 96))


def compute(seconds: float, block: Block) -> None:
    """Square the matrix again and again; it is scaled so that it stays finite."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        np.matmul(block, block, out=block)
        block /= np.abs(block).max()
