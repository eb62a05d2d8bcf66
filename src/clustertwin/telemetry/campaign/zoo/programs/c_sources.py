"""Write C sources for a compiler: number of files, seed -> part-N.c, a main and a Makefile in this folder."""

from __future__ import annotations

import random
import sys
from pathlib import Path


def main(count: int = 60, functions: int = 40, seed: int = 1) -> None:
    rng = random.Random(seed)
    for part in range(count):
        lines = ["#include <math.h>", "#include <stdio.h>", "#include <string.h>"]
        for number in range(functions):
            terms = " + ".join(
                f"{rng.uniform(-2, 2):.4f} * {rng.choice(('sin', 'cos', 'exp', 'sqrt'))}(x * {k + 1})" for k in range(8)
            )
            lines += [
                f"double f_{part}_{number}(const double *a, int n) {{",
                "  double s = 0;",
                "  for (int i = 0; i < n; i++) {",
                f"    double x = a[i]; s += {terms}; if (s > {rng.randint(2, 99)}) s /= 3;",
                "  }",
                "  return s;",
                "}",
            ]
        Path(f"part-{part}.c").write_text("\n".join(lines) + "\n")
    declared = "\n".join(f"double f_{part}_0(const double *, int);" for part in range(count))
    called = "\n".join(f"  s += f_{part}_0(a, 2);" for part in range(count))
    Path("main.c").write_text(
        f"{declared}\nint main(void) {{\n  double a[2] = {{1, 2}}, s = 0;\n{called}\n  return s > 1e9;\n}}\n"
    )
    Path("Makefile").write_text(
        "objects = $(patsubst %.c,%.o,$(wildcard *.c))\nall: $(objects)\n\tgcc -o all $(objects) -lm\n"
        "%.o: %.c\n\tgcc -O3 -c $< -o $@\n"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
