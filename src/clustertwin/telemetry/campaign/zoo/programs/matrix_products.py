"""numpy: products, decompositions and Fourier transforms of random matrices."""

from __future__ import annotations

import numpy as np


def main(size: int = 900, repeats: int = 30) -> None:
    rng = np.random.default_rng(1)
    for _ in range(repeats):
        matrix = rng.normal(size=(size, size))
        np.linalg.solve(matrix, matrix @ matrix)
        np.fft.fft2(matrix)
        np.linalg.eigvalsh(matrix + matrix.T)


if __name__ == "__main__":
    main()
