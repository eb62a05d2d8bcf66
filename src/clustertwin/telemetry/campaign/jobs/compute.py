"""Keep a CPU busy: seconds -> matrix products for about that time, which is all user time."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

Block = NDArray[np.float64]


def new_block(rng: np.random.Generator) -> Block:
    """A matrix that fits into the L2 cache, so that a product takes well under a millisecond."""
    return rng.random((96, 96))


def compute(seconds: float, block: Block) -> None:
    """Square the matrix repeatedly, scaled so that it stays finite."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        np.matmul(block, block, out=block)
        block /= np.abs(block).max()
