"""Water molecules on a cubic lattice: molecules per edge, spacing in ångström -> coordinates on stdout."""

from __future__ import annotations

import itertools
import sys


def main(edge: int, spacing: float) -> None:
    for cell in itertools.product(range(edge), repeat=3):
        x, y, z = (spacing * place for place in cell)
        # Neighbours are turned, so that the dipoles do not add up.
        turn = 1 if sum(cell) % 2 else -1
        sys.stdout.write(f"O {x:.3f} {y:.3f} {z:.3f}\n")
        for side in (1, -1):
            sys.stdout.write(f"H {x + side * 0.757:.3f} {y:.3f} {z + turn * 0.586:.3f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
