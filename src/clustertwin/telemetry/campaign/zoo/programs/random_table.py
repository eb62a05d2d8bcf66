"""Write text or bytes to compress or sort: kind and number of items, from a seed, on stdout."""

from __future__ import annotations

import random
import sys


def main(kind: str, count: int, seed: int = 1) -> None:
    rng = random.Random(seed)
    if kind == "rows":
        sys.stdout.writelines(f"{rng.getrandbits(40)} {rng.random()} {number}\n" for number in range(count))
    else:
        words = [rng.randbytes(rng.randint(2, 12)) for _ in range(5000)]
        for _ in range(count // 1000):
            sys.stdout.buffer.write(b"".join(rng.choices(words, k=1000)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
