"""The default model, fused: windows of many threads -> embeddings and reconstruction errors, equal to 1e-5.

    z = P x + A gelu(B x)          x' ∝ max(U z, floor) · exp(C gelu(D z))

Threads are columns. They are processed in blocks that fit into the cache, as matrix products with fused elementwise
passes between them. A simplex needs one ratio and one factor exp(…) fewer than it has channels: the last ratio is one
minus the others, and factors are relative to that of the last channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.models.fused.elementwise import (
    add_bias_and_gelu,
    add_squared_errors,
    add_squared_errors_of_four,
)

Array = NDArray[np.float32]

#: Threads per block. A block needs about 1 MB, which fits into a core's own cache; the size is a multiple of 48, the
#: number of columns that the matrix products process at once.
BLOCK = 192
#: Corrections up to this size leave room for sums of their exponentials.
_LARGEST_CORRECTION = 60.0


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The order of a schema's channels in the rows: free channels first, simplex by simplex, then implied ones."""

    order: tuple[int, ...]  # channel of each row
    groups: tuple[tuple[int, int, int], ...]  # (first row, end, row of the implied channel or -1)

    @classmethod
    def of(cls, schema: Schema) -> RowLayout:
        simplexes = [(*indices[:-1], indices[-1]) for indices in schema.simplexes.values()]
        free = [channel for simplex in simplexes for channel in simplex[:-1]] + list(schema.bounded)
        groups, first = [], 0
        for number, simplex in enumerate(simplexes):
            groups.append((first, first + len(simplex) - 1, len(free) + number))
            first += len(simplex) - 1
        groups += [(row, row + 1, -1) for row in range(first, len(free))]
        return cls((*free, *(simplex[-1] for simplex in simplexes)), tuple(groups))


@dataclass(frozen=True, slots=True)
class FusedLinear:
    """The weights of a `LinearPathAutoencoder`, reordered: out = weights @ in, with threads as columns."""

    schema: Schema
    length: int
    layout: RowLayout
    latent: int
    encoder: torch.Tensor  # (latent + hidden, free * length) P and B
    encoder_bias: Array  # (latent + hidden,)
    encoder_correction: torch.Tensor  # (latent, hidden) A
    decoder_hidden: torch.Tensor  # (hidden, latent) D
    decoder_hidden_bias: Array  # (hidden,)
    ratio: torch.Tensor  # (free * length, latent) U
    ratio_bias: Array  # (free, length)
    correction: torch.Tensor  # (free * length, hidden) C, relative to the implied channel
    correction_norm: float  # the largest absolute row sum of C
    floor: np.float32

    def __call__(self, values: Array, valid: NDArray[np.bool_]) -> tuple[Array, Array]:
        """(n, length, channel) and (n, length) -> embedding (n, latent) and reconstruction error (n,)."""
        if values.shape[1:] != (self.length, len(self.schema)):
            raise SettingsError(
                f"the model accepts windows of {self.length} seconds and {len(self.schema)} channels, "
                f"not {values.shape[1]} and {values.shape[2]}"
            )
        n = len(values)
        columns, present = values.transpose(2, 1, 0), valid.T  # (channel, length, n), (length, n)
        complete: NDArray[np.bool_] = np.logical_and.reduce(present, axis=0)  # (n,)
        embedding, error = np.empty((self.latent, n), np.float32), np.zeros(n, np.float32)
        workspace = _Workspace(self, min(BLOCK, n))
        for start in range(0, n, BLOCK):
            block = slice(start, min(start + BLOCK, n))
            if block.stop - start != workspace.width:
                workspace = _Workspace(self, block.stop - start)
            workspace.load(columns[:, :, block], None if complete[block].all() else present[:, block])
            self._run_block(workspace, error[block])
            embedding[:, block] = workspace.z
        seconds = self.length if complete.all() else np.maximum(present.sum(0), 1)
        error /= np.float32(len(self.schema)) * seconds
        return embedding.T, error

    def _run_block(self, w: _Workspace, error: Array) -> None:
        """Compute w.z (latent, n) from the loaded windows, and add their squared errors to error (n,)."""
        torch.mm(self.encoder, w.inputs_, out=w.encoded_)
        add_bias_and_gelu(w.encoded, self.encoder_bias, self.latent)
        torch.addmm(w.encoded_[: self.latent], self.encoder_correction, w.encoded_[self.latent :], out=w.z_)
        torch.mm(self.decoder_hidden, w.z_, out=w.hidden_)
        add_bias_and_gelu(w.hidden, self.decoder_hidden_bias, 0)
        torch.mm(self.ratio, w.z_, out=w.ratio_)
        torch.mm(self.correction, w.hidden_, out=w.correction_)
        # A bound on every correction of the block. GELU is never below -0.2.
        bound = self.correction_norm * max(float(w.hidden.max(initial=0)), 0.2)
        if self.layout.groups == ((0, 3, 3),) and bound < _LARGEST_CORRECTION:
            add_squared_errors_of_four(w.ratio, self.ratio_bias, self.floor, w.correction, w.observed, w.valid, error)
        else:
            paths = w.ratio, self.ratio_bias, w.correction
            for group in self.layout.groups:
                add_squared_errors(paths, self.floor, w.observed, group, w.valid, w.scratch, error)


class _Workspace:
    """The reusable arrays of one block. A name with a trailing underscore is the same memory as a torch matrix."""

    def __init__(self, model: FusedLinear, n: int) -> None:
        channels, free = len(model.schema), len(model.correction) // model.length
        self.width, self.order, self.masked = n, model.layout.order, False
        self.observed, self.observed_ = _array_and_matrix(channels, model.length, n)
        self.inputs_ = self.observed_[: free * model.length]
        self.valid = np.ones((model.length, n), np.bool_)
        self.encoded, self.encoded_ = _array_and_matrix(len(model.encoder), n)
        # z is contiguous: matrix products are slow if every row lies on a memory page of its own.
        self.z, self.z_ = _array_and_matrix(model.latent, n)
        self.hidden, self.hidden_ = _array_and_matrix(len(model.decoder_hidden), n)
        self.ratio, self.ratio_ = _array_and_matrix(free, model.length, n)
        self.correction, self.correction_ = _array_and_matrix(free, model.length, n)
        self.scratch = np.empty((free + 3, n), np.float32)

    def load(self, values: Array, valid: NDArray[np.bool_] | None) -> None:
        """Copy values (channel, length, n) and valid (length, n) into the workspace; None means that all are valid."""
        if self.order == tuple(range(len(self.order))):
            self.observed[:] = values
        else:
            for row, channel in enumerate(self.order):
                self.observed[row] = values[channel]
        if valid is not None:
            np.copyto(self.observed, np.float32(0), where=~valid)
            self.valid[:], self.masked = valid, True
        elif self.masked:
            self.valid[:], self.masked = True, False


def _array_and_matrix(*shape: int) -> tuple[Array, torch.Tensor]:
    """An array and a matrix that share memory, which torch aligns. All axes but the last are the matrix's rows."""
    matrix = torch.empty(int(np.prod(shape[:-1])), shape[-1])
    return matrix.numpy().reshape(shape), matrix


def fuse(model: Any, floor: float) -> FusedLinear:
    """The fused form of a `LinearPathAutoencoder`, whose smallest ratio is `floor`."""
    shape = model.config.shape
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    layout, latent = RowLayout.of(shape.schema), model.config.latent
    inputs = sum(end - first for first, end, _ in layout.groups)
    # Input i of second t is column t * inputs + i in the model, and row r * length + t here.
    column = [shape.inputs.index(channel) for channel in layout.order[:inputs]]

    def from_inputs(weight: Array) -> Array:  # (m, length * input) -> (m, input * length)
        return weight.reshape(len(weight), shape.length, inputs)[:, :, column].swapaxes(1, 2).reshape(len(weight), -1)

    def to_inputs(weight: Array) -> Array:  # (length * input, m) -> (input in layout order, length, m)
        return weight.reshape(shape.length, inputs, -1).swapaxes(0, 1)[column]

    def to_channels(weight: Array) -> Array:  # (length * channel, m) -> (channel in layout order, length, m)
        return weight.reshape(shape.length, len(shape.schema), -1).swapaxes(0, 1)[list(layout.order)]

    correction = to_channels(weights["unbend_to_x.weight"]).copy()
    for first, end, implied in layout.groups:
        if implied >= 0:
            correction[first:end] -= correction[implied]
    arrays = {
        "encoder": from_inputs(np.concatenate([weights["project.weight"], weights["bend.weight"]])),
        "encoder_bias": np.concatenate([weights["project.bias"], weights["bend.bias"]]),
        "encoder_correction": weights["bend_to_z.weight"],
        "decoder_hidden": weights["unbend.weight"],
        "decoder_hidden_bias": weights["unbend.bias"],
        "ratio": to_inputs(weights["unproject.weight"]).reshape(-1, latent),
        "ratio_bias": to_inputs(weights["unproject.bias"][:, None])[:, :, 0],
        "correction": correction[:inputs].reshape(inputs * shape.length, -1),
    }
    ready: dict[str, Any] = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
    norm = float(np.abs(ready["correction"]).sum(1).max())
    matrices = ("encoder", "encoder_correction", "decoder_hidden", "ratio", "correction")
    ready |= {name: torch.from_numpy(ready[name]) for name in matrices}
    return FusedLinear(
        shape.schema, shape.length, layout, latent, **ready, correction_norm=norm, floor=np.float32(floor)
    )
