"""The elementwise parts of a model, in place and in vectors: rows of one value each for many threads.

A column is a thread, so no loop ever looks across its vector. `exp` and `erf` are approximated: e^x by a polynomial
and five squarings, erf by Abramowitz and Stegun's 7.1.26; a ratio or an embedding is off by less than 1e-6.
"""

from __future__ import annotations

import numpy as np

from clustertwin.telemetry.compiled import vectorised

f = np.float32


@vectorised
def falling(x):  # type: ignore[no-untyped-def]
    """e^x for x ≤ 0; what is below e^-20 is as good as nothing."""
    y = (x if x > f(-20) else f(-20)) * f(1 / 32)
    p = f(1) + y * (f(1) + y * (f(1 / 2) + y * (f(1 / 6) + y * (f(1 / 24) + y * f(1 / 120)))))
    p *= p
    p *= p
    p *= p
    p *= p
    return p * p


@vectorised
def gelu(rows, bias):  # type: ignore[no-untyped-def]
    """rows (r, n) <- x Φ(x) of rows + bias (r,)."""
    for r in range(rows.shape[0]):
        row, b = rows[r], bias[r]
        for j in range(row.size):
            x = row[j] + b
            u = abs(x) * f(0.70710678)
            t = f(1) / (f(1) + f(0.3275911) * u)
            q = f(-1.453152027) + t * f(1.061405429)
            q = t * (f(0.254829592) + t * (f(-0.284496736) + t * (f(1.421413741) + t * q)))
            row[j] = (x if x > f(0) else f(0)) - f(0.5) * abs(x) * q * falling(-u * u)


@vectorised
def add_squares(logits, bias, free, implied, whole, valid, scratch, out):  # type: ignore[no-untyped-def]
    """out (n,) += Σ over valid seconds of the squared distance of a softmax from what was seen.

    logits (k, second, n) and bias (k, second) are those of the free channels about the implied one, whose logit is
    zero; free (k, second, n) and implied (second, n) were seen. Where not `whole` the implied one is no channel but
    the rest of a bounded one, and its distance does not count. scratch (k + 2, n).
    """
    k, n = logits.shape[0], out.size
    top, total = scratch[k], scratch[k + 1]
    for s in range(valid.shape[0]):
        for j in range(n):
            top[j] = f(0)
        for c in range(k):
            y, b, e = logits[c, s], bias[c, s], scratch[c]
            for j in range(n):
                x = y[j] + b
                e[j] = x
                top[j] = x if x > top[j] else top[j]
        for j in range(n):
            total[j] = falling(-top[j])
        for c in range(k):
            e = scratch[c]
            for j in range(n):
                x = falling(e[j] - top[j])
                e[j] = x
                total[j] += x
        rest, there = implied[s], valid[s]
        for j in range(n):
            part = f(1) / total[j]
            d = falling(-top[j]) * part - rest[j]
            total[j] = part
            top[j] = d * d if whole else f(0)
        for c in range(k):
            e, seen = scratch[c], free[c, s]
            for j in range(n):
                d = e[j] * total[j] - seen[j]
                top[j] += d * d
        for j in range(n):
            out[j] += top[j] if there[j] else f(0)
