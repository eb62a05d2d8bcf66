"""The elementwise parts of the fused model, in place: rows of one value each, columns of threads.

Every thread is a column, so the inner loops are vectorised across threads. `exp` and `erf` are approximated, with
errors of 4e-7 (relative) and 2e-7 (Abramowitz and Stegun, 7.1.26). A ratio or an embedding is off by less than 1e-6.
"""

from __future__ import annotations

import numpy as np

from clustertwin.core.compiled import vectorised

f = np.float32

#: The largest x for which e^x is a float32.
MAX_EXPONENT = 87.0


@vectorised
def exponential(x):  # type: ignore[no-untyped-def]
    """e^x for x <= MAX_EXPONENT; smaller values are clipped at -MAX_EXPONENT.

    2^n is built from the bits of the exponent, the remainder from a minimax polynomial.
    """
    x = x if x > f(-MAX_EXPONENT) else f(-MAX_EXPONENT)
    n = np.floor(x * f(1.44269504) + f(0.5))
    y = x - n * f(0.69314718)
    p = f(0.49998895) + y * (f(0.16667575) + y * (f(0.04191538) + y * f(0.00829766)))
    p = f(1.00000007) + y * (f(0.99999969) + y * p)
    return np.int32((np.int32(n) << np.int32(23)) + np.float32(p).view(np.int32)).view(np.float32)


@vectorised
def add_bias_and_gelu(rows, bias, linear):  # type: ignore[no-untyped-def]
    """rows (r, n) += bias (r,), followed by GELU, x Φ(x), in all but the first `linear` rows."""
    for r in range(linear):
        row, b = rows[r], bias[r]
        for j in range(row.size):
            row[j] += b
    for r in range(linear, rows.shape[0]):
        row, b = rows[r], bias[r]
        for j in range(row.size):
            x = row[j] + b
            u = abs(x) * f(0.70710678)
            t = f(1) / (f(1) + f(0.3275911) * u)
            q = f(-1.453152027) + t * f(1.061405429)
            q = t * (f(0.254829592) + t * (f(-0.284496736) + t * (f(1.421413741) + t * q)))
            row[j] = (x if x > f(0) else f(0)) - f(0.5) * abs(x) * q * exponential(-u * u)


@vectorised
def add_squared_errors(paths, floor, observed, group, valid, scratch, out):  # type: ignore[no-untyped-def]
    """out (n,) += the squared reconstruction error of one group of channels, summed over valid seconds.

    group is (first, end, implied): the free rows are first to end - 1; a simplex also has one implied row. A negative
    `implied` stands for a single bounded channel, whose complement is not observed.
    paths is (ratio, bias, correction): the linear path is ratio (free row, second, n) + bias (free row, second), and
    the implied row is one minus its sum; correction (free row, second, n) is the logarithm of the factor, relative to
    that of the implied row. observed is (row, second, n), scratch (free rows + 3, n).
    """
    ratio, bias, correction = paths
    first, end, implied = group
    n = out.size
    top, total = scratch[0], scratch[1]
    for s in range(valid.shape[0]):
        for j in range(n):
            top[j] = f(0)
        for c in range(first, end):
            b = correction[c, s]
            for j in range(n):
                top[j] = b[j] if b[j] > top[j] else top[j]
        rest = scratch[2]
        for j in range(n):
            rest[j] = f(1)
        for c in range(first, end):
            u, v = ratio[c, s], bias[c, s]
            for j in range(n):
                rest[j] -= u[j] + v
        # The complement of a bounded channel is at most 1 - floor.
        most = f(1) - floor if implied < 0 else f(np.inf)
        for j in range(n):
            x = rest[j] if rest[j] < most else most
            rest[j] = (x if x > floor else floor) * exponential(-top[j])
        for j in range(n):
            total[j] = rest[j]
        for c in range(first, end):
            scaled, u, v, b = scratch[3 + c - first], ratio[c, s], bias[c, s], correction[c, s]
            for j in range(n):
                x = u[j] + v
                x = (x if x > floor else floor) * exponential(b[j] - top[j])
                scaled[j] = x
                total[j] += x
        for j in range(n):
            total[j] = f(1) / total[j]
            top[j] = f(0)
        for c in range(first, end):
            scaled, x = scratch[3 + c - first], observed[c, s]
            for j in range(n):
                d = scaled[j] * total[j] - x[j]
                top[j] += d * d
        if implied >= 0:
            x = observed[implied, s]
            for j in range(n):
                d = rest[j] * total[j] - x[j]
                top[j] += d * d
        present = valid[s]
        for j in range(n):
            out[j] += top[j] if present[j] else f(0)


@vectorised
def add_squared_errors_of_four(ratio, bias, floor, correction, observed, valid, out):  # type: ignore[no-untyped-def]
    """`add_squared_errors` for a single simplex of four channels whose corrections are far below MAX_EXPONENT.

    A second of a thread stays in registers, which is three times as fast.
    """
    for s in range(valid.shape[0]):
        u0, u1, u2, present = ratio[0, s], ratio[1, s], ratio[2, s], valid[s]
        v0, v1, v2 = bias[0, s], bias[1, s], bias[2, s]
        b0, b1, b2 = correction[0, s], correction[1, s], correction[2, s]
        x0, x1, x2, x3 = observed[0, s], observed[1, s], observed[2, s], observed[3, s]
        for j in range(out.size):
            r0, r1, r2 = u0[j] + v0, u1[j] + v1, u2[j] + v2
            r3 = f(1) - r0 - r1 - r2
            m0 = (r0 if r0 > floor else floor) * exponential(b0[j])
            m1 = (r1 if r1 > floor else floor) * exponential(b1[j])
            m2 = (r2 if r2 > floor else floor) * exponential(b2[j])
            m3 = r3 if r3 > floor else floor
            scale = f(1) / (m0 + m1 + m2 + m3)
            d0, d1, d2, d3 = m0 * scale - x0[j], m1 * scale - x1[j], m2 * scale - x2[j], m3 * scale - x3[j]
            square = d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3
            out[j] += square if present[j] else f(0)
