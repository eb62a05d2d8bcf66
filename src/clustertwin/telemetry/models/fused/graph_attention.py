"""The attention weights of a graph model without torch: embeddings of one group -> α (thread, thread).

    α_ij = softmax_j Σ_h w_h tanh(r_ih + s_jh)

The cost is the sum over h for every pair of threads: T² H hyperbolic tangents. With a = e^2r and b = e^2s,
tanh(r + s) = 1 - 2 / (1 + a b). A pair then costs one product and one division, and the exponentials are computed once
per thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import vectorised
from clustertwin.telemetry.models.fused.elementwise import exponential

f = np.float32
Array = NDArray[np.float32]

#: Up to this argument, exponentials and their products and sums are float32. Beyond it, `_Pairs` uses tanh directly.
_LARGEST_EXPONENT = 60.0
#: 1 - 2 / this is one to the last bit, and a product of four such numbers is still a float32.
_LARGEST_DENOMINATOR = 1e9
#: Receivers processed at a time, so that memory does not grow with the square of a job's threads.
_RECEIVERS = 128


@vectorised
def _denominator(a, b):  # type: ignore[no-untyped-def]
    denominator = f(1) + a * b
    return denominator if denominator < f(_LARGEST_DENOMINATOR) else f(_LARGEST_DENOMINATOR)


@vectorised
def _attend(sides, first, w, alpha):  # type: ignore[no-untyped-def]
    """sides (2, hidden, thread) as exponentials, w (hidden,) -> alpha (i, j) of the receivers from `first` on.

    Terms that are equal for all j cancel in the softmax and are left out.
    """
    a, b = sides[0], sides[1]
    for i in range(alpha.shape[0]):
        row = alpha[i]
        for j in range(row.size):
            row[j] = f(0)
        for h in range(0, w.size, 4):
            a0, a1, a2, a3 = a[h, first + i], a[h + 1, first + i], a[h + 2, first + i], a[h + 3, first + i]
            b0, b1, b2, b3 = b[h], b[h + 1], b[h + 2], b[h + 3]
            w0, w1, w2, w3 = f(2) * w[h], f(2) * w[h + 1], f(2) * w[h + 2], f(2) * w[h + 3]
            for j in range(row.size):
                # Four quotients share one division, which costs as much as a dozen products.
                x0, x1 = _denominator(a0, b0[j]), _denominator(a1, b1[j])
                x2, x3 = _denominator(a2, b2[j]), _denominator(a3, b3[j])
                left, right = x0 * x1, x2 * x3
                row[j] -= ((w0 * x1 + w1 * x0) * right + (w2 * x3 + w3 * x2) * left) / (left * right)
        total = f(0)
        for j in range(row.size):
            row[j] = exponential(row[j])
            total += row[j]
        scale = f(1) / total
        for j in range(row.size):
            row[j] *= scale


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The receiver and sender terms of a group's threads."""

    sides: Array  # (2, hidden, thread) twice r and s; their exponentials unless `large`
    w: Array  # (hidden,)
    large: bool  # too large for exponentials

    @classmethod
    def of(cls, update: Any, z: Array) -> _Pairs:
        receive, send, weigh = (layer.weight.detach().numpy() for layer in (update.receive, update.send, update.weigh))
        # Hidden units are processed four at a time; the padding has weight zero.
        hidden = len(send) + -len(send) % 4
        weights, w = np.zeros((2, hidden, z.shape[1]), np.float32), np.zeros(hidden, np.float32)
        weights[0, : len(send)], weights[1, : len(send)], w[: len(send)] = receive, send, weigh[0]
        weights *= 2
        sides = (weights.reshape(2 * hidden, -1) @ z.T).reshape(2, hidden, -1)
        sides[0, : len(send)] += 2 * update.receive.bias.detach().numpy()[:, None]
        large = bool(max(sides.max(), -sides.min(), 2 * np.abs(w).sum()) > _LARGEST_EXPONENT)
        return cls(sides if large else np.exp(sides, out=sides), w, large)

    def attend(self, first: int, alpha: Array) -> None:
        """Fill alpha (receiver, thread) with the weights of the receivers from `first` on."""
        if not self.large:
            _attend(self.sides, first, self.w, alpha)
            return
        receive, send = self.sides[0, :, first : first + len(alpha)].T, self.sides[1].T
        a = np.tanh((receive[:, None] + send) / 2) @ self.w  # (receiver, thread)
        e = np.exp(a - a.max(1, keepdims=True))
        np.divide(e, e.sum(1, keepdims=True), out=alpha)


def attention_weights(update: Any, z: Array) -> Array:
    """α of a `GraphUpdate` for the threads of one group, z (thread, latent); every row sums to one."""
    alpha = np.empty((len(z), len(z)), np.float32)
    _Pairs.of(update, z).attend(0, alpha)
    return alpha


def attention_messages(update: Any, z: Array) -> Array:
    """Σ_j α_ij z_j for each thread of one group, z (thread, latent), with a few rows of α at a time."""
    pairs, messages = _Pairs.of(update, z), np.empty_like(z)
    alpha = np.empty((min(_RECEIVERS, len(z)), len(z)), np.float32)
    for first in range(0, len(z), _RECEIVERS):
        rows = alpha[: len(z) - first]
        pairs.attend(first, rows)
        np.matmul(rows, z, out=messages[first : first + _RECEIVERS])
    return messages
