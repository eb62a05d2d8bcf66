"""The elementwise parts of a model, in place and in vectors: rows of one value each for many threads.

A column is a thread, so no loop ever looks across its vector. `exp` and `erf` are approximated, to 4e-7 of e^x and to
2e-7 (Abramowitz and Stegun's 7.1.26); a ratio or an embedding is off by less than 1e-6.
"""

from __future__ import annotations

import numpy as np

from clustertwin.core.compiled import vectorised

f = np.float32

#: Beyond, e^x is no float32.
FAR = 87.0


@vectorised
def exponential(x):  # type: ignore[no-untyped-def]
    """e^x for x up to FAR; below -FAR there is nothing. 2^n by its bits, what remains by the best polynomial for it."""
    x = x if x > f(-FAR) else f(-FAR)
    n = np.floor(x * f(1.44269504) + f(0.5))
    y = x - n * f(0.69314718)
    p = f(0.49998895) + y * (f(0.16667575) + y * (f(0.04191538) + y * f(0.00829766)))
    p = f(1.00000007) + y * (f(0.99999969) + y * p)
    return np.int32((np.int32(n) << np.int32(23)) + np.float32(p).view(np.int32)).view(np.float32)


@vectorised
def bend(rows, bias, straight):  # type: ignore[no-untyped-def]
    """rows (r, n) <- rows + bias (r,), and x Φ(x) of it (GELU) in all but the first `straight` rows."""
    for r in range(straight):
        row, b = rows[r], bias[r]
        for j in range(row.size):
            row[j] += b
    for r in range(straight, rows.shape[0]):
        row, b = rows[r], bias[r]
        for j in range(row.size):
            x = row[j] + b
            u = abs(x) * f(0.70710678)
            t = f(1) / (f(1) + f(0.3275911) * u)
            q = f(-1.453152027) + t * f(1.061405429)
            q = t * (f(0.254829592) + t * (f(-0.284496736) + t * (f(1.421413741) + t * q)))
            row[j] = (x if x > f(0) else f(0)) - f(0.5) * abs(x) * q * exponential(-u * u)


@vectorised
def add_squares(ratio, bias, floor, bent, seen, first, end, implied, valid, scratch, out):  # type: ignore[no-untyped-def]
    """out (n,) += Σ over valid seconds of the squared distance between one group's ratios, as made and as seen.

    A group has the free rows first to end - 1 and, if it is a simplex, one implied row; else (implied < 0) it is one
    bounded channel, whose rest nobody measured. ratio (free row, second, n) and bias (free row, second) make the linear
    path, whose rest to one is the implied row's; bent (free row, second, n) what it is multiplied by, as logarithms
    about the implied row's; seen (row, second, n); scratch (free rows + 3, n).
    """
    n = out.size
    top, total = scratch[0], scratch[1]
    for s in range(valid.shape[0]):
        for j in range(n):
            top[j] = f(0)
        for c in range(first, end):
            b = bent[c, s]
            for j in range(n):
                top[j] = b[j] if b[j] > top[j] else top[j]
        rest = scratch[2]
        for j in range(n):
            rest[j] = f(1)
        for c in range(first, end):
            u, v = ratio[c, s], bias[c, s]
            for j in range(n):
                rest[j] -= u[j] + v
        # What one bounded channel leaves is no more than the floor allows.
        most = f(1) - floor if implied < 0 else f(np.inf)
        for j in range(n):
            x = rest[j] if rest[j] < most else most
            rest[j] = (x if x > floor else floor) * exponential(-top[j])
        for j in range(n):
            total[j] = rest[j]
        for c in range(first, end):
            made, u, v, b = scratch[3 + c - first], ratio[c, s], bias[c, s], bent[c, s]
            for j in range(n):
                x = u[j] + v
                x = (x if x > floor else floor) * exponential(b[j] - top[j])
                made[j] = x
                total[j] += x
        for j in range(n):
            total[j] = f(1) / total[j]
            top[j] = f(0)
        for c in range(first, end):
            made, x = scratch[3 + c - first], seen[c, s]
            for j in range(n):
                d = made[j] * total[j] - x[j]
                top[j] += d * d
        if implied >= 0:
            x = seen[implied, s]
            for j in range(n):
                d = rest[j] * total[j] - x[j]
                top[j] += d * d
        there = valid[s]
        for j in range(n):
            out[j] += top[j] if there[j] else f(0)


@vectorised
def add_squares_of_four(ratio, bias, floor, bent, seen, valid, out):  # type: ignore[no-untyped-def]
    """`add_squares` of one simplex of four channels, rows 0 to 3, where no logarithm is near FAR: all of a second in
    registers, three times as fast."""
    for s in range(valid.shape[0]):
        u0, u1, u2, there = ratio[0, s], ratio[1, s], ratio[2, s], valid[s]
        v0, v1, v2 = bias[0, s], bias[1, s], bias[2, s]
        b0, b1, b2 = bent[0, s], bent[1, s], bent[2, s]
        x0, x1, x2, x3 = seen[0, s], seen[1, s], seen[2, s], seen[3, s]
        for j in range(out.size):
            r0, r1, r2 = u0[j] + v0, u1[j] + v1, u2[j] + v2
            r3 = f(1) - r0 - r1 - r2
            m0 = (r0 if r0 > floor else floor) * exponential(b0[j])
            m1 = (r1 if r1 > floor else floor) * exponential(b1[j])
            m2 = (r2 if r2 > floor else floor) * exponential(b2[j])
            m3 = r3 if r3 > floor else floor
            part = f(1) / (m0 + m1 + m2 + m3)
            d0, d1, d2, d3 = m0 * part - x0[j], m1 * part - x1[j], m2 * part - x2[j], m3 * part - x3[j]
            square = d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3
            out[j] += square if there[j] else f(0)
