"""A cantilever of bricks: number of bricks along x, y and z -> a CalculiX deck on stdout, static and then its modes."""

from __future__ import annotations

import itertools
import sys

_STEEL = "*material, name=steel\n*elastic\n210000, 0.3\n*density\n7.8e-9\n*solid section, elset=all, material=steel\n"
_STEPS = "*step\n*static\n*cload\n{end}, 3, -100\n*end step\n*step\n*frequency\n8\n*end step\n"


def main(*bricks: int) -> None:
    points = [range(count + 1) for count in bricks]
    number = {point: n for n, point in enumerate(itertools.product(*points), 1)}
    write = sys.stdout.write
    write("*node, nset=all\n" + "".join(f"{n}, {x}, {y}, {z}\n" for (x, y, z), n in number.items()))
    write("*element, type=C3D8I, elset=all\n")
    corners = [(0, 0), (1, 0), (1, 1), (0, 1)]
    for n, (x, y, z) in enumerate(itertools.product(*map(range, bricks)), 1):
        around = [number[x + i, y + j, z + k] for k in (0, 1) for i, j in corners]
        write(f"{n}, {', '.join(map(str, around))}\n")
    wall = [n for (x, _, _), n in number.items() if x == 0]
    write("*nset, nset=wall\n" + "".join(f"{n},\n" for n in wall))
    write(_STEEL + "*boundary\nwall, 1, 3\n" + _STEPS.format(end=max(number.values())))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
