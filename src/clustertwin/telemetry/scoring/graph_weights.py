"""Who listens to whom in a graph model, without torch: embeddings of one group -> α (thread, thread), rows sum to one.

    α_ij = softmax_j Σ_h w_h tanh(r_ih + s_jh)

The sum over h for every pair is the work: T² H hyperbolic tangents. With a = e^2r and b = e^2s, tanh(r + s) is
1 - 2 / (1 + a b), so a pair costs one product and one division, and the exponentials are taken once for each thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.loops import vectorised
from clustertwin.telemetry.scoring.kernels import falling

f = np.float32
Array = NDArray[np.float32]

#: So far e^2x is a float32. Embeddings that lead beyond are weighed the slow way.
_FAR = 40.0
#: 1 - 2 / (1 + this) is one to the last bit, and a product of four such numbers is still a float32.
_MOST = 1e9
#: Receivers at a time, so that memory does not grow with the square of a job.
_ROWS = 128


@vectorised
def _odds(a, b):  # type: ignore[no-untyped-def]
    product = a * b
    return f(1) + (product if product < f(_MOST) else f(_MOST))


@vectorised
def _weigh(a, b, w, alpha):  # type: ignore[no-untyped-def]
    """a (i, hidden), b (hidden, j), w (hidden,) -> alpha (i, j). What is the same for all j drops out of a softmax."""
    for i in range(alpha.shape[0]):
        row = alpha[i]
        for j in range(row.size):
            row[j] = f(0)
        for h in range(0, w.size, 4):
            a0, a1, a2, a3 = a[i, h], a[i, h + 1], a[i, h + 2], a[i, h + 3]
            b0, b1, b2, b3 = b[h], b[h + 1], b[h + 2], b[h + 3]
            w0, w1, w2, w3 = f(2) * w[h], f(2) * w[h + 1], f(2) * w[h + 2], f(2) * w[h + 3]
            for j in range(row.size):
                # Four quotients over one denominator: a division costs as much as a dozen products.
                x0, x1, x2, x3 = _odds(a0, b0[j]), _odds(a1, b1[j]), _odds(a2, b2[j]), _odds(a3, b3[j])
                left, right = x0 * x1, x2 * x3
                row[j] -= ((w0 * x1 + w1 * x0) * right + (w2 * x3 + w3 * x2) * left) / (left * right)
        top = row[0]
        for j in range(row.size):
            top = row[j] if row[j] > top else top
        total = f(0)
        for j in range(row.size):
            row[j] = falling(row[j] - top)
            total += row[j]
        part = f(1) / total
        for j in range(row.size):
            row[j] *= part


def _softmax(a: Array) -> Array:
    e = np.exp(a - a.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


@dataclass(frozen=True, slots=True)
class _Sides:
    """Twice what each thread brings as a receiver and as a sender."""

    receive: Array  # (thread, hidden)
    send: Array  # (hidden, thread)
    w: Array  # (hidden,)
    far: bool  # too far for exponentials; else these are taken already

    @classmethod
    def of(cls, update: Any, z: Array) -> _Sides:
        receive, send, weigh = (layer.weight.detach().numpy() for layer in (update.receive, update.send, update.weigh))
        # Hidden units go four by four; those that fill up weigh nothing.
        hidden = len(send) + -len(send) % 4
        w, a, b = (np.zeros(shape, np.float32) for shape in (hidden, (len(z), hidden), (hidden, len(z))))
        w[: len(send)] = weigh[0]
        np.matmul(z, 2 * receive.T, out=a[:, : len(send)])
        np.matmul(2 * send, z.T, out=b[: len(send)])
        a[:, : len(send)] += 2 * update.receive.bias.detach().numpy()
        far = bool(max(a.max(), -a.min(), b.max(), -b.min()) > 2 * _FAR)
        return cls(a, b, w, True) if far else cls(np.exp(a, out=a), np.exp(b, out=b), w, False)

    def weigh(self, rows: slice, alpha: Array) -> None:
        """The weights (row, thread) that these receivers give."""
        if self.far:
            alpha[:] = _softmax(np.tanh((self.receive[rows, None] + self.send.T) / 2) @ self.w)
        else:
            _weigh(self.receive[rows], self.send, self.w, alpha)


def graph_weights(update: Any, z: Array) -> Array:
    """The weights α that a `GraphUpdate` gives the threads of one group, z (thread, latent)."""
    alpha = np.empty((len(z), len(z)), np.float32)
    _Sides.of(update, z).weigh(slice(None), alpha)
    return alpha


def graph_messages(update: Any, z: Array) -> Array:
    """Σ_j α_ij z_j for each thread of one group, z (thread, latent), with a few rows of α at a time."""
    sides, message = _Sides.of(update, z), np.empty_like(z)
    alpha = np.empty((min(_ROWS, len(z)), len(z)), np.float32)
    for start in range(0, len(z), _ROWS):
        rows = slice(start, min(start + _ROWS, len(z)))
        some = alpha[: rows.stop - start]
        sides.weigh(rows, some)
        np.matmul(some, z, out=message[rows])
    return message
