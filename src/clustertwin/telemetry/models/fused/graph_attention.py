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

from clustertwin.core.compiled import vectorised
from clustertwin.telemetry.models.fused.elementwise import exponential

f = np.float32
Array = NDArray[np.float32]

#: So far e^x is a float32, and so are sums and products of some. What leads beyond is weighed the slow way.
_FAR = 60.0
#: 1 - 2 / this is one to the last bit, and a product of four such numbers is still a float32.
_MOST = 1e9
#: Receivers at a time, so that memory does not grow with the square of a job.
_ROWS = 128


@vectorised
def _odds(a, b):  # type: ignore[no-untyped-def]
    odds = f(1) + a * b
    return odds if odds < f(_MOST) else f(_MOST)


@vectorised
def _weigh(sides, first, w, alpha):  # type: ignore[no-untyped-def]
    """sides (2, hidden, thread) as exponentials, w (hidden,) -> alpha (i, j) of the receivers from `first` on.

    What is the same for all j drops out of a softmax.
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
                # Four quotients over one denominator: a division costs as much as a dozen products.
                x0, x1, x2, x3 = _odds(a0, b0[j]), _odds(a1, b1[j]), _odds(a2, b2[j]), _odds(a3, b3[j])
                left, right = x0 * x1, x2 * x3
                row[j] -= ((w0 * x1 + w1 * x0) * right + (w2 * x3 + w3 * x2) * left) / (left * right)
        total = f(0)
        for j in range(row.size):
            row[j] = exponential(row[j])
            total += row[j]
        part = f(1) / total
        for j in range(row.size):
            row[j] *= part


@dataclass(frozen=True, slots=True)
class _Pairs:
    """What the threads of a group bring to each other."""

    sides: Array  # (2, hidden, thread) twice what each is as a receiver and as a sender
    w: Array  # (hidden,)
    far: bool  # too far for exponentials; else these are taken already

    @classmethod
    def of(cls, update: Any, z: Array) -> _Pairs:
        receive, send, weigh = (layer.weight.detach().numpy() for layer in (update.receive, update.send, update.weigh))
        # Hidden units go four by four; those that fill up weigh nothing.
        hidden = len(send) + -len(send) % 4
        weights, w = np.zeros((2, hidden, z.shape[1]), np.float32), np.zeros(hidden, np.float32)
        weights[0, : len(send)], weights[1, : len(send)], w[: len(send)] = receive, send, weigh[0]
        weights *= 2
        sides = (weights.reshape(2 * hidden, -1) @ z.T).reshape(2, hidden, -1)
        sides[0, : len(send)] += 2 * update.receive.bias.detach().numpy()[:, None]
        far = bool(max(sides.max(), -sides.min(), 2 * np.abs(w).sum()) > _FAR)
        return cls(sides if far else np.exp(sides, out=sides), w, far)

    def weigh(self, first: int, alpha: Array) -> None:
        """alpha (receiver, thread) <- the weights that the receivers from `first` on give."""
        if not self.far:
            _weigh(self.sides, first, self.w, alpha)
            return
        receive, send = self.sides[0, :, first : first + len(alpha)].T, self.sides[1].T
        a = np.tanh((receive[:, None] + send) / 2) @ self.w  # (receiver, thread)
        e = np.exp(a - a.max(1, keepdims=True))
        np.divide(e, e.sum(1, keepdims=True), out=alpha)


def graph_weights(update: Any, z: Array) -> Array:
    """The weights α that a `GraphUpdate` gives the threads of one group, z (thread, latent)."""
    alpha = np.empty((len(z), len(z)), np.float32)
    _Pairs.of(update, z).weigh(0, alpha)
    return alpha


def graph_messages(update: Any, z: Array) -> Array:
    """Σ_j α_ij z_j for each thread of one group, z (thread, latent), with a few rows of α at a time."""
    pairs, message = _Pairs.of(update, z), np.empty_like(z)
    alpha = np.empty((min(_ROWS, len(z)), len(z)), np.float32)
    for first in range(0, len(z), _ROWS):
        some = alpha[: len(z) - first]
        pairs.weigh(first, some)
        np.matmul(some, z, out=message[first : first + _ROWS])
    return message
