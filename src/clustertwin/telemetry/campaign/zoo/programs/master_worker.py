"""A master that hands tasks of random length to workers through pipes, and waits for their answers."""

from __future__ import annotations

import multiprocessing
import time

import numpy as np


def solve(seed: int) -> float:
    rng = np.random.default_rng(seed)
    total = 0.0
    for _ in range(int(rng.integers(2, 30))):
        total += float(np.linalg.eigvalsh(rng.normal(size=(180, 180)))[-1])
    return total


def main(workers: int = 3, seconds: float = 120.0) -> None:
    end_s = time.monotonic() + seconds
    with multiprocessing.Pool(workers) as pool:
        for _ in pool.imap_unordered(solve, range(1_000_000)):
            if time.monotonic() > end_s:
                break


if __name__ == "__main__":
    main()
