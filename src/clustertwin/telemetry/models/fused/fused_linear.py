"""The default model, fused: last windows of many threads -> embeddings and errors, the same to 1e-5.

    z = P x + A gelu(B x)          x' ∝ max(U z, floor) · exp(C gelu(D z))

Threads are columns and go through in blocks that stay in the cache, as matrix products with what lies between them
fused into passes over the block. A simplex needs one ratio and one factor exp(…) less than it has channels: the last
ratio is what the others leave, and factors are taken about the last one's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.models.fused.elementwise import add_squares, add_squares_of_four, bend

Array = NDArray[np.float32]

#: Threads at a time: what a block needs, about 1 MB, lies in a core's own cache; a multiple of 48, which is how many
#: columns the matrix products take at once.
BLOCK = 192
#: Logarithms up to here leave room for sums of their exponentials.
_NEAR = 60.0


@dataclass(frozen=True, slots=True)
class Free:
    """The channels of a schema in the order of the rows: free ones first, simplex by simplex, then implied ones."""

    order: tuple[int, ...]  # channel of each row
    groups: tuple[tuple[int, int, int], ...]  # (first row, end, row of the implied channel or -1)

    @classmethod
    def of(cls, schema: Schema) -> Free:
        runs = [(*indices[:-1], indices[-1]) for indices in schema.simplexes.values()]
        free = [channel for run in runs for channel in run[:-1]] + list(schema.bounded)
        groups, first = [], 0
        for number, run in enumerate(runs):
            groups.append((first, first + len(run) - 1, len(free) + number))
            first += len(run) - 1
        groups += [(row, row + 1, -1) for row in range(first, len(free))]
        return cls((*free, *(run[-1] for run in runs)), tuple(groups))


@dataclass(frozen=True, slots=True)
class FusedLinear:
    """Weights with threads as columns, rows of free channels before seconds: out = weights @ in."""

    schema: Schema
    length: int
    free: Free
    latent: int
    into: torch.Tensor  # (latent + hidden, free * length) P and B
    into_bias: Array  # (latent + hidden,)
    bend: torch.Tensor  # (latent, hidden) A
    unbend: torch.Tensor  # (hidden, latent) D
    unbend_bias: Array  # (hidden,)
    ratio: torch.Tensor  # (free * length, latent) U
    ratio_bias: Array  # (free, length)
    bent: torch.Tensor  # (free * length, hidden) C, about the implied channel's
    bent_reach: float  # the largest of C's rows, by its sum of sizes
    floor: np.float32

    @property
    def products(self) -> int:
        """How many a window takes, each with a sum."""
        return sum(weight.numel() for weight in (self.into, self.bend, self.unbend, self.ratio, self.bent))

    def __call__(self, values: Array, valid: NDArray[np.bool_]) -> tuple[Array, Array]:
        """(n, length, channel) and (n, length) -> embedding (n, latent) and mean squared error (n,)."""
        if values.shape[1:] != (self.length, len(self.schema)):
            raise SettingsError(
                f"the model takes windows of {self.length} seconds and {len(self.schema)} channels, "
                f"not {values.shape[1]} and {values.shape[2]}"
            )
        n = len(values)
        columns, there = values.transpose(2, 1, 0), valid.T  # (channel, length, n), (length, n)
        whole: NDArray[np.bool_] = np.logical_and.reduce(there, axis=0)  # (n,)
        embedding, error = np.empty((self.latent, n), np.float32), np.zeros(n, np.float32)
        room = _Room(self, min(BLOCK, n))
        for start in range(0, n, BLOCK):
            rows = slice(start, min(start + BLOCK, n))
            if rows.stop - start != room.width:
                room = _Room(self, rows.stop - start)
            room.take(columns[:, :, rows], None if whole[rows].all() else there[:, rows])
            self._block(room, error[rows])
            embedding[:, rows] = room.z
        seconds = self.length if whole.all() else np.maximum(there.sum(0), 1)
        error /= np.float32(len(self.schema)) * seconds
        return embedding.T, error

    def _block(self, room: _Room, error: Array) -> None:
        """What the room has taken in -> its z (latent, n), and the squared errors added to error (n,)."""
        torch.mm(self.into, room.inputs_, out=room.inner_)
        bend(room.inner, self.into_bias, self.latent)
        torch.addmm(room.inner_[: self.latent], self.bend, room.inner_[self.latent :], out=room.z_)
        torch.mm(self.unbend, room.z_, out=room.hidden_)
        bend(room.hidden, self.unbend_bias, 0)
        torch.mm(self.ratio, room.z_, out=room.ratio_)
        torch.mm(self.bent, room.hidden_, out=room.bent_)
        made = room.ratio, self.ratio_bias, self.floor, room.bent, room.seen
        # What a bent path can reach at most: GELU is above -0.2, and each of its values has a weight.
        reach = self.bent_reach * max(float(room.hidden.max(initial=0)), 0.2)
        if self.free.groups == ((0, 3, 3),) and reach < _NEAR:
            add_squares_of_four(*made, room.valid, error)
        else:
            for group in self.free.groups:
                add_squares(*made, *group, room.valid, room.scratch, error)


class _Room:
    """The arrays of one block, used again and again; a name with an underscore is the same memory as a matrix."""

    def __init__(self, model: FusedLinear, n: int) -> None:
        channels, free = len(model.schema), len(model.bent) // model.length
        self.width, self.order, self.masked = n, model.free.order, False
        self.seen, self.seen_ = _both(channels, model.length, n)
        self.inputs_ = self.seen_[: free * model.length]
        self.valid = np.ones((model.length, n), np.bool_)
        self.inner, self.inner_ = _both(len(model.into), n)
        self.z, self.z_ = _both(model.latent, n)  # rows next to each other: products are slow where each has its page
        self.hidden, self.hidden_ = _both(len(model.unbend), n)
        self.ratio, self.ratio_ = _both(free, model.length, n)
        self.bent, self.bent_ = _both(free, model.length, n)
        self.scratch = np.empty((free + 3, n), np.float32)

    def take(self, values: Array, valid: NDArray[np.bool_] | None) -> None:
        """values (channel, length, n) and valid (length, n), None: all of it."""
        if self.order == tuple(range(len(self.order))):
            self.seen[:] = values
        else:
            for row, channel in enumerate(self.order):
                self.seen[row] = values[channel]
        if valid is not None:
            np.copyto(self.seen, np.float32(0), where=~valid)
            self.valid[:], self.masked = valid, True
        elif self.masked:
            self.valid[:], self.masked = True, False


def _both(*shape: int) -> tuple[Array, torch.Tensor]:
    """An array, and a matrix of the same memory: all but the last axis are its rows. Torch aligns it for vectors."""
    matrix = torch.empty(int(np.prod(shape[:-1])), shape[-1])
    return matrix.numpy().reshape(shape), matrix


def fuse(model: Any, floor: float) -> FusedLinear:
    """The fused form of a `LinearPathAutoencoder`, whose smallest ratio is `floor`."""
    shape = model.config.shape
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    free, latent = Free.of(shape.schema), model.config.latent
    inputs = sum(end - first for first, end, _ in free.groups)
    # What the model calls input i of second t is column t * inputs + i; here it is row r * length + t.
    column = [shape.inputs.index(channel) for channel in free.order[:inputs]]

    def from_seen(weight: Array) -> Array:  # (m, length * input) -> (m, input * length)
        return weight.reshape(len(weight), shape.length, inputs)[:, :, column].swapaxes(1, 2).reshape(len(weight), -1)

    def to_seen(weight: Array) -> Array:  # (length * input, m) -> (input in order, length, m)
        return weight.reshape(shape.length, inputs, -1).swapaxes(0, 1)[column]

    def to_made(weight: Array) -> Array:  # (length * channel, m) -> (channel in order, length, m)
        return weight.reshape(shape.length, len(shape.schema), -1).swapaxes(0, 1)[list(free.order)]

    bent = to_made(weights["unbend_to_x.weight"]).copy()
    for first, end, implied in free.groups:
        if implied >= 0:
            bent[first:end] -= bent[implied]
    arrays = {
        "into": from_seen(np.concatenate([weights["project.weight"], weights["bend.weight"]])),
        "into_bias": np.concatenate([weights["project.bias"], weights["bend.bias"]]),
        "bend": weights["bend_to_z.weight"],
        "unbend": weights["unbend.weight"],
        "unbend_bias": weights["unbend.bias"],
        "ratio": to_seen(weights["unproject.weight"]).reshape(-1, latent),
        "ratio_bias": to_seen(weights["unproject.bias"][:, None])[:, :, 0],
        "bent": bent[:inputs].reshape(inputs * shape.length, -1),
    }
    ready: dict[str, Any] = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
    reach = float(np.abs(ready["bent"]).sum(1).max())
    ready |= {name: torch.from_numpy(ready[name]) for name in ("into", "bend", "unbend", "ratio", "bent")}
    return FusedLinear(shape.schema, shape.length, free, latent, **ready, bent_reach=reach, floor=np.float32(floor))
