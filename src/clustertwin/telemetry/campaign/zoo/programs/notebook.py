"""A notebook: short cells of work, and long pauses in which a person reads. It idles by design."""

from __future__ import annotations

import time

import numpy as np


def main(seconds: float = 600.0) -> None:
    rng = np.random.default_rng(int(time.time()))
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        table = rng.normal(size=(200_000, 8))
        for _ in range(int(rng.integers(1, 6))):
            np.sort(table, axis=0)
            np.linalg.svd(table, full_matrices=False)
        time.sleep(float(rng.lognormal(2.3, 0.8)))


if __name__ == "__main__":
    main()
