"""A stencil code that writes its whole state to disk, flushed, after every part of its steps."""

from __future__ import annotations

import os
import time

import numpy as np


def main(size: int = 2000, seconds: float = 300.0, every_s: float = 20.0) -> None:
    field = np.random.default_rng(1).normal(size=(size, size))
    end_s = time.monotonic() + seconds
    saved_s = time.monotonic()
    while time.monotonic() < end_s:
        field[1:-1, 1:-1] = 0.25 * (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:])
        if time.monotonic() - saved_s > every_s:
            with open("state.new", "wb") as out:
                for _ in range(4):
                    out.write(field.tobytes())
                out.flush()
                os.fsync(out.fileno())
            saved_s = time.monotonic()


if __name__ == "__main__":
    main()
