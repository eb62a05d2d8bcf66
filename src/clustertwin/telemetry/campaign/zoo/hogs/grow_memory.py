"""Allocate and touch memory at a constant rate: megabytes per second, most megabytes -> a process that grows."""

from __future__ import annotations

import sys
import time

_STEPS_PER_S = 10


def main(mb_per_s: float, most_mb: float) -> None:
    blocks: list[bytearray] = []
    start_s = time.monotonic()
    while (held_mb := sum(len(block) for block in blocks) / 1e6) < most_mb:
        due_mb = min((time.monotonic() - start_s) * mb_per_s, most_mb)
        if due_mb > held_mb:
            blocks.append(bytearray(b"\1") * round((due_mb - held_mb) * 1e6))  # every page is written
        time.sleep(1 / _STEPS_PER_S)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]))
