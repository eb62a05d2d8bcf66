"""The default model without torch: last windows of many threads -> embeddings and errors, the same to 1e-5.

Threads are columns and go through in blocks that stay in the cache, as four matrix products with what lies between
them fused into three passes. A softmax has one logit too many: those of each simplex's last channel are taken from
the others', which saves a quarter of the last product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.scoring.kernels import add_squares, gelu

Array = NDArray[np.float32]

#: Threads at a time: what a block needs, about 1 MB, lies in a core's own cache.
BLOCK = 256


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
class FastModel:
    """Weights with threads as columns, rows of free channels before seconds: out = weights @ in."""

    schema: Schema
    length: int
    free: Free
    latent: int
    into: Array  # (latent + hidden, free * length) both paths in
    into_bias: Array  # (latent + hidden,)
    meet: Array  # (latent, latent + hidden) where they meet in z
    bend: Array  # (hidden, latent)
    bend_bias: Array  # (hidden,)
    out: Array  # (free * length, latent + hidden) both paths out, to logits about the implied channel's
    out_bias: Array  # (free, length)

    def __call__(self, values: Array, valid: NDArray[np.bool_]) -> tuple[Array, Array]:
        """(n, length, channel) and (n, length) -> embedding (n, latent) and mean squared error (n,)."""
        if values.shape[1:] != (self.length, len(self.schema)):
            raise SettingsError(
                f"the model takes windows of {self.length} seconds and {len(self.schema)} channels, "
                f"not {values.shape[1]} and {values.shape[2]}"
            )
        n = len(values)
        embedding, error = np.empty((n, self.latent), np.float32), np.empty(n, np.float32)
        room = _Room(self, min(BLOCK, n))
        for start in range(0, n, BLOCK):
            rows = slice(start, min(start + BLOCK, n))
            if rows.stop - start != room.error.size:
                room = _Room(self, rows.stop - start)
            self._block(values[rows].transpose(2, 1, 0), valid[rows].T, room)
            embedding[rows], error[rows] = room.back[: self.latent].T, room.error
        return embedding, error

    def _block(self, values: Array, valid: NDArray[np.bool_], room: _Room) -> None:
        """values (channel, length, n) and valid (length, n) -> room.back's first rows and room.error."""
        for row, channel in enumerate(self.free.order):
            room.seen[row] = values[channel]
        room.valid[:] = valid
        if not room.valid.all():
            np.copyto(room.seen, np.float32(0), where=~room.valid)
        inputs = room.logits.shape[0]
        hidden = room.there[self.latent :]
        np.matmul(self.into, room.seen[:inputs].reshape(-1, room.error.size), out=room.there)
        room.there[: self.latent] += self.into_bias[: self.latent, None]
        gelu(hidden, self.into_bias[self.latent :])
        z, hidden = room.back[: self.latent], room.back[self.latent :]
        np.matmul(self.meet, room.there, out=z)
        np.matmul(self.bend, z, out=hidden)
        gelu(hidden, self.bend_bias)
        np.matmul(self.out, room.back, out=room.logits.reshape(-1, room.error.size))
        room.error[:] = 0
        for first, end, implied in self.free.groups:
            whole = implied >= 0
            # A bounded channel is a simplex of itself and a rest that nobody measured.
            rest = room.seen[implied] if whole else room.seen[first]
            add_squares(
                room.logits[first:end],
                self.out_bias[first:end],
                room.seen[first:end],
                rest,
                whole,
                room.valid,
                room.scratch,
                room.error,
            )
        room.error /= np.maximum(room.valid.sum(0), 1) * np.float32(len(self.schema))


class _Room:
    """The arrays of one block, used again and again."""

    def __init__(self, model: FastModel, n: int) -> None:
        inputs = model.out_bias.shape[0]
        self.seen = np.empty((len(model.schema), model.length, n), np.float32)
        self.valid = np.empty((model.length, n), np.bool_)
        self.there = np.empty((len(model.into), n), np.float32)
        self.back = np.empty((model.meet.shape[1], n), np.float32)
        self.logits = np.empty((inputs, model.length, n), np.float32)
        self.scratch = np.empty((inputs + 2, n), np.float32)
        self.error = np.empty(n, np.float32)


def fast(model: Any) -> FastModel | None:
    """The same model, fast; None where its architecture has no fast form."""
    from clustertwin.telemetry.models.linear import LinearPathAutoencoder

    if type(model) is not LinearPathAutoencoder:
        return None
    shape = model.config.shape
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    free, latent = Free.of(shape.schema), model.config.latent
    inputs = sum(end - first for first, end, _ in free.groups)
    # What the model calls input i of second t is column t * inputs + i; here it is row r * length + t.
    column = [shape.inputs.index(channel) for channel in free.order[:inputs]]

    def from_seen(weight: Array) -> Array:  # (m, length * input) -> (m, input * length)
        return weight.reshape(len(weight), shape.length, inputs)[:, :, column].swapaxes(1, 2).reshape(len(weight), -1)

    def about_implied(weight: Array) -> Array:  # (length * channel, m) -> (input, length, m)
        by_row = weight.reshape(shape.length, len(shape.schema), -1).swapaxes(0, 1)[list(free.order)].copy()
        for first, end, implied in free.groups:
            if implied >= 0:
                by_row[first:end] -= by_row[implied]
        return by_row[:inputs]

    both = np.concatenate([weights["unproject.weight"], weights["unbend_to_x.weight"]], axis=1)
    bias = weights["unproject.bias"] + np.tile(weights["prior"], shape.length)
    arrays = {
        "into": from_seen(np.concatenate([weights["project.weight"], weights["bend.weight"]])),
        "into_bias": np.concatenate([weights["project.bias"], weights["bend.bias"]]),
        "meet": np.concatenate([np.eye(latent), weights["bend_to_z.weight"]], axis=1),
        "bend": weights["unbend.weight"],
        "bend_bias": weights["unbend.bias"],
        "out": about_implied(both).reshape(-1, both.shape[1]),
        "out_bias": about_implied(bias[:, None])[:, :, 0],
    }
    ready = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
    return FastModel(shape.schema, shape.length, free, latent, **ready)
